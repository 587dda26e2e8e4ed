import type { State } from "../../core/event.ts";
import type { Copy, Reads } from "../judge/reads.ts";
import type { RunBroker } from "../../contracts/adapter.ts";
import type { Delivery } from "../../contracts/source.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { inWords } from "../../core/in-words.ts";
import { follow } from "../../core/time.ts";
import { deadTopicOf, readerOf, topicOf, type Ground } from "./ground.ts";
import { aggregateName, countHeader, shaOf, type Carried } from "./workload.ts";

/** Reads a topic, oldest first within each aggregate. `expected`: ids that must be there, as far as the store knows. */
export type ReadTopic = (topic: string, expected: ReadonlySet<string>) => Promise<readonly ReadMessage[]>;

/** A message, whichever client read it. */
export interface ReadMessage extends Carried {
  readonly id: string;
  readonly aggregateType: string;
  readonly aggregateId: string;
}

export type StoreReads = Pick<Reads, "written" | "effects" | "outbox" | "status">;

/** Reads the tables over new connections: the view and the status command are what is judged. */
export async function readStore({ ask, tables, store }: Ground): Promise<StoreReads> {
  const written = await ask(`SELECT id, aggregate, n FROM ${tables.written}`);
  const effects = await ask(`SELECT consumer, topic, id, aggregate, n FROM ${tables.effects} ORDER BY position`);
  const outbox = await ask(`SELECT id, aggregate_type, aggregate_id, status FROM ${tables.outbox}`);
  const said = (await store.operator.status()).states;
  const counted = await ask(`SELECT status, count(*) AS n FROM ${tables.outbox} GROUP BY status`);
  // PUBLISHING is no status of a row. No relay works any more, so status must report 0 of them.
  const truth = Object.fromEntries(Object.keys(said).map((state) => [state, 0]));
  for (const { status, n } of counted) truth[String(status)] = Number(n);
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
      state: String(row["status"]) as State,
    })),
    status: { said, truth },
  };
}

interface Wanted {
  readonly topics: readonly string[];
  readonly consumers: readonly string[];
  /** What the store says must be there. */
  readonly store: Pick<StoreReads, "outbox" | "effects">;
}

/** One topic after the other, so that each has the reader's whole patience. */
export async function readBroker(read: ReadTopic, { topics, consumers, store }: Wanted): Promise<Pick<Reads, "broker" | "letters">> {
  const broker: Copy[] = [];
  const letters: NonNullable<Reads["letters"]>[number][] = [];
  const done = new Set(store.effects?.map(({ consumer, id }) => `${consumer} ${id}`));
  for (const topic of topics) {
    const published = (store.outbox ?? []).filter(({ aggregate, state }) => state === "PUBLISHED" && topicOf(aggregate) === topic);
    const ids = published.map(({ id }) => id);
    for (const message of await read(topic, new Set(ids))) {
      const n = Number(message.headers[countHeader]);
      broker.push({ topic, id: message.id, aggregate: aggregateName(message), n, sha: shaOf(message) });
    }
    // An event without an effect has a letter.
    const parked = new Set(ids.filter((id) => consumers.some((consumer) => !done.has(`${consumer} ${id}`))));
    for (const { id, headers } of await read(deadTopicOf(topic), parked))
      letters.push({ consumer: headers["waybill-dead-consumer"] ?? "", id });
  }
  return { broker, letters };
}

interface Patience {
  /** How long the topic must be silent once every expected message is there. */
  readonly quietMs: number;
  /** How long to wait for another message while one is missing. */
  readonly lateMs: number;
  /** How long the first message may take: a consumer group may wait for more members before it begins. */
  readonly firstMs: number;
  /** A topic that takes longer counts as not read. */
  readonly capMs: number;
}

const usual: Patience = { quietMs: 1_500, lateMs: 10_000, firstMs: 30_000, capMs: 600_000 };

/** Reads a topic with its own consumer, until every expected message has come and no more messages come. */
export function freshReader(
  open: () => Pick<RunBroker, "broker" | "slow"> & AsyncDisposable,
  signal: AbortSignal,
  patience: Partial<Patience> = {},
): ReadTopic {
  const { quietMs, lateMs, firstMs, capMs } = { ...usual, ...patience };
  return async (topic, expected) => {
    await using opened = open();
    const found: ReadMessage[] = [];
    const missing = new Set(expected);
    const ending = follow(signal);
    let heard = clock.monotonic();
    const until = heard + capMs;
    const silenceMs = (): number => {
      if (missing.size > 0) return found.length === 0 ? firstMs : lateMs;
      return found.length === 0 && opened.slow === true ? lateMs : quietMs;
    };
    let capped = false;
    const watch = async (): Promise<void> => {
      while (!ending.signal.aborted && clock.monotonic() - heard < silenceMs()) {
        await clock.sleep(Math.min(50, Math.max(0, until - clock.monotonic())), ending.signal);
        capped = clock.monotonic() >= until && !ending.signal.aborted;
        if (capped) break;
      }
      ending.abort();
    };
    let watching: Promise<void> | null = null;
    const take = async ({ envelope, ...delivery }: Delivery): Promise<void> => {
      heard = clock.monotonic();
      found.push(envelope);
      missing.delete(envelope.id);
      // Acknowledged at once: a lost ack only causes one more delivery, to the next receiver.
      await delivery.ack().catch(() => undefined);
    };
    const acks: Promise<void>[] = [];
    try {
      await opened.broker.connect(ending.signal);
      heard = clock.monotonic();
      watching = watch();
      for await (const delivery of opened.broker.receive({ consumer: readerOf(topic), topics: [topic], prefetch: 1_000 }, ending.signal))
        acks.push(take(delivery));
    } finally {
      ending.abort();
      ending.release();
      await Promise.allSettled([...acks, watching]);
    }
    signal.throwIfAborted();
    // A message that was not read is not lost.
    if (capped) throw new WaybillError("DESTINATION_UNAVAILABLE", `${topic} could not be read to its end within ${inWords(capMs)}`);
    return found;
  };
}
