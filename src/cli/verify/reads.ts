import type { State } from "../../core/event.ts";
import type { Copy, Reads } from "../../verify/reads.ts";
import type { Delivery } from "../../contracts/source.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { deadTopicOf, type Ground } from "./ground.ts";
import { openRunBroker } from "./run-broker.ts";
import type { Place } from "./task.ts";
import { aggregateName, countHeader, shaOf } from "./workload.ts";

/** What a topic holds, oldest first within each aggregate. */
export type ReadTopic = (topic: string) => Promise<readonly Found[]>;

/** A message, whoever read it. */
export interface Found {
  readonly id: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: Uint8Array;
}

export type StoreReads = Pick<Reads, "written" | "effects" | "outbox" | "status">;

/** With connections that nobody has used before. */
export async function readStore({ ask, tables, store }: Ground): Promise<StoreReads> {
  const written = await ask(`SELECT id, aggregate, n FROM ${tables.written}`);
  const effects = await ask(`SELECT consumer, topic, id, aggregate, n FROM ${tables.effects} ORDER BY position`);
  const outbox = await ask(`SELECT id, aggregate_type, aggregate_id, state FROM ${tables.outboxEvents}`);
  const said = (await store.operator.status()).states;
  const counted = await ask(`SELECT state, count(*) AS n FROM ${tables.outboxEvents} GROUP BY state`);
  const truth = Object.fromEntries(Object.keys(said).map((state) => [state, 0]));
  for (const { state, n } of counted) truth[String(state)] = Number(n);
  const place = ({ id, aggregate, n }: Readonly<Record<string, unknown>>) => ({
    id: String(id),
    aggregate: String(aggregate),
    n: Number(n),
  });
  return {
    written: written.map(place),
    effects: effects.map((row) => ({ ...place(row), consumer: String(row["consumer"]), topic: String(row["topic"]) })),
    outbox: outbox.map((row) => ({
      id: String(row["id"]),
      aggregate: aggregateName({ aggregateType: String(row["aggregate_type"]), aggregateId: String(row["aggregate_id"]) }),
      state: String(row["state"]) as State,
    })),
    status: { said, truth },
  };
}

export async function readBroker(read: ReadTopic, topics: readonly string[]): Promise<Pick<Reads, "broker" | "letters">> {
  const copies = async (topic: string): Promise<readonly Copy[]> =>
    (await read(topic)).map(({ id, headers, data, ...of }) => ({
      ...{ topic, id, aggregate: aggregateName(of), n: Number(headers[countHeader]), sha: shaOf(data) },
    }));
  const parked = async (topic: string): Promise<NonNullable<Reads["letters"]>> =>
    (await read(deadTopicOf(topic))).map(({ id, headers }) => ({ consumer: headers["waybill-dead-consumer"] ?? "", id }));
  const [broker, letters] = await Promise.all([Promise.all(topics.map(copies)), Promise.all(topics.map(parked))]);
  return { broker: broker.flat(), letters: letters.flat() };
}

/** Who reads the topics at the end; it has a place in them from the beginning. */
export const readerName = "reader";
const silentMs = 1_500;
const readingMs = 60_000;

/** Reads a topic with a consumer that nobody has used before, until nothing more comes. */
export function freshReader(place: Place): ReadTopic {
  return async (topic) => {
    await using opened = openRunBroker(place);
    const found: Found[] = [];
    const ending = new AbortController();
    let heard = clock.monotonic();
    const until = heard + readingMs;
    const watch = (async () => {
      while (!ending.signal.aborted && clock.monotonic() - heard < silentMs && clock.monotonic() < until)
        await clock.sleep(50, ending.signal);
      ending.abort();
    })();
    const take = async ({ envelope, ...delivery }: Delivery): Promise<void> => {
      heard = clock.monotonic();
      const { id, aggregateType, aggregateId, headers, data } = envelope;
      found.push({ id, aggregateType, aggregateId, headers, data });
      await delivery.ack();
    };
    await opened.broker.connect(ending.signal);
    heard = clock.monotonic();
    const acks: Promise<void>[] = [];
    try {
      for await (const delivery of opened.broker.receive({ consumer: readerName, topics: [topic], prefetch: 1_000 }, ending.signal))
        acks.push(take(delivery));
    } finally {
      ending.abort();
      await Promise.allSettled([...acks, watch]);
    }
    return found;
  };
}
