import pg from "pg";
import { performance } from "node:perf_hooks";
import { setTimeout as sleep } from "node:timers/promises";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import { systemClock } from "../../src/core/clock.ts";
import { systemRandom, type Random } from "../../src/core/random.ts";
import { fork, picker } from "../simulation/plan.ts";
import { bodyOf, contentTypeOf, headersOf, isBytes, typeOf } from "./genuine.ts";
import type { Ground } from "./ground.ts";

export interface LoadOptions {
  readonly seed: number;
  readonly segment: number;
  /** Committed events per second, at most. */
  readonly rate: number;
  readonly writers: number;
  /** True: so much waits that writers wait too. */
  isBehind(): boolean;
}

/** How a transaction ended, for the story of a bad event. */
export interface Written {
  readonly at: number;
  readonly what: string;
  readonly end: "committed" | "rolled back" | "unknown";
}

export interface Load {
  /** Events of acknowledged commits. */
  readonly committed: ReadonlySet<string>;
  /** What was written with each id, committed or not. The last part says which ids were taken back to a savepoint. */
  readonly written: ReadonlyMap<string, Written>;
  readonly takenBack: ReadonlySet<string>;
  /** Ids of acknowledged commits whose ledger must have them. */
  stop(): Promise<void>;
}

const types = ["Order", "Stock", "User"];
const cold = Array.from({ length: 300 }, (_, at) => `${types[at % 3]!}/${at}`);
const hot = types.map((type) => `${type}/hot`);
export const aggregates = [...hot, ...cold];

/** The shares of transactions of each kind. The others are plain. */
const kinds = { undone: 0.05, open: 0.02, large: 0.0015 };
const openMs = 400;
const hotShare = 0.25;
const savepointShare = 0.2;
const delayedShare = 0.04;
const keyedShare = 0.1;
const plainSqlShare = 0.3;

interface Event {
  readonly id: string;
  readonly aggregate: string;
  readonly key: string | null;
  readonly availableAt: Date | null;
}

/** Writers on connections of their own. Each aggregate's events are serialised by its row in `locks`, so seq order is commit order. */
export function startLoad({ url, store }: Ground, options: LoadOptions): Load {
  const outbox = createOutbox({ store });
  const newId = uuidv7(systemClock, systemRandom);
  const committed = new Set<string>();
  const written = new Map<string, Written>();
  const takenBack = new Set<string>();
  const ending = new AbortController();
  const began = performance.now();

  const eventsOf = (random: Random, among: readonly string[], count: number, used: readonly string[]): readonly Event[] => {
    const pick = picker(random);
    return Array.from({ length: count }, () => {
      const id = newId();
      const aggregate = pick(among);
      const keyed = random.next() < keyedShare;
      const again = keyed && used.length > 0 && random.next() < 0.3;
      const delayed = random.next() < delayedShare;
      const availableAt = delayed ? new Date(Date.now() + 50 + random.next() * 2_950) : null;
      return { id, aggregate, key: again ? pick(used) : keyed ? `key-${id}` : null, availableAt };
    });
  };
  /** Answers what was added: an event whose key was used is not. */
  const add = async (client: pg.Client, events: readonly Event[], byOutbox: boolean): Promise<readonly Event[]> => {
    const added = byOutbox ? await addByOutbox(client, events) : await addBySql(client, events);
    await client.query("INSERT INTO ledger (id, aggregate, segment) SELECT *, $3::integer FROM unnest($1::text[], $2::text[])", [
      added.map(({ id }) => id),
      added.map(({ aggregate }) => aggregate),
      options.segment,
    ]);
    return added;
  };
  const addByOutbox = async (client: pg.Client, events: readonly Event[]): Promise<readonly Event[]> => {
    const answers = await outbox.add(
      client,
      events.map(({ id, aggregate, key, availableAt }) => ({
        ...{ id, type: typeOf(id), headers: headersOf(id), contentType: contentTypeOf(id) },
        ...{ aggregateType: aggregate.split("/")[0]!, aggregateId: aggregate.split("/")[1]! },
        payload: isBytes(id) ? Buffer.from(bodyOf(id)) : (JSON.parse(bodyOf(id)) as unknown),
        ...(key === null ? {} : { idempotencyKey: key }),
        ...(availableAt === null ? {} : { availableAt }),
      })),
    );
    return events.filter((_, at) => answers[at]?.duplicate === false);
  };
  const addBySql = async (client: pg.Client, events: readonly Event[]): Promise<readonly Event[]> => {
    const { rows } = await client.query<{ id: string }>(
      `INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, payload_bytes, content_type, headers, idempotency_key, available_at)
       SELECT e.id, e.type, e.aggregate, e.event_type, CASE WHEN e.bytes THEN NULL ELSE e.body END,
              CASE WHEN e.bytes THEN convert_to(e.body, 'UTF8') END, e.content_type, e.headers::json, e.key, e.available_at
       FROM unnest($1::text[], $2::text[], $3::text[], $4::text[], $5::text[], $6::boolean[], $7::text[], $8::text[], $9::text[], $10::timestamptz[])
         AS e (id, type, aggregate, event_type, body, bytes, content_type, headers, key, available_at)
       RETURNING id`,
      [
        events.map(({ id }) => id),
        events.map(({ aggregate }) => aggregate.split("/")[0]),
        events.map(({ aggregate }) => aggregate.split("/")[1]),
        events.map(({ id }) => typeOf(id)),
        events.map(({ id }) => bodyOf(id)),
        events.map(({ id }) => isBytes(id)),
        events.map(({ id }) => contentTypeOf(id)),
        events.map(({ id }) => JSON.stringify(headersOf(id))),
        events.map(({ key }) => key),
        events.map(({ availableAt }) => availableAt?.toISOString() ?? null),
      ],
    );
    const ids = new Set(rows.map(({ id }) => id));
    return events.filter(({ id }) => ids.has(id));
  };

  const transaction = async (client: pg.Client, random: Random, keys: string[], name: string): Promise<void> => {
    const drawn = random.next();
    const isLarge = drawn < kinds.large;
    const isOpen = !isLarge && drawn < kinds.large + kinds.open;
    const isUndone = random.next() < kinds.undone;
    const pick = picker(random);
    const few = Array.from({ length: 1 + Math.floor(random.next() * 3) }, () => pick(random.next() < hotShare ? hot : cold));
    const among = isLarge ? Array.from({ length: 60 }, () => pick(cold)) : few;
    const [mine, undone]: [Event[], Event[]] = [[], []];
    const what = `${name}: ${isLarge ? "large" : isOpen ? "long open" : "plain"} transaction`;
    const end = (how: Written["end"]): void => {
      for (const { id } of [...mine, ...undone]) written.set(id, { at: performance.now(), what, end: how });
      for (const { id } of undone) takenBack.add(id);
      if (how !== "committed") return;
      for (const { id, key } of mine) {
        committed.add(id);
        if (key !== null) keys.push(key);
      }
      if (keys.length > 50) keys.splice(0, keys.length - 50);
    };
    await client.query("BEGIN");
    await client.query("SELECT 1 FROM locks WHERE aggregate = ANY ($1) ORDER BY aggregate FOR UPDATE", [among]);
    const parts = isLarge ? [2_000 + Math.floor(random.next() * 3_000)] : partsOf(1 + Math.floor(random.next() * 10), random);
    for (const count of parts) {
      const isPoint = random.next() < savepointShare;
      const isTakenBack = isPoint && random.next() < 0.5;
      const byOutbox = random.next() >= plainSqlShare;
      const events = eventsOf(random, among, count, keys);
      if (isPoint) await client.query("SAVEPOINT part");
      (isTakenBack ? undone : mine).push(...(await add(client, events, byOutbox)));
      if (isPoint) await client.query(isTakenBack ? "ROLLBACK TO SAVEPOINT part" : "RELEASE SAVEPOINT part");
    }
    if (isOpen) await sleep(openMs);
    if (isUndone) {
      await client.query("ROLLBACK");
      return end("rolled back");
    }
    try {
      await client.query("COMMIT");
      end("committed");
    } catch (error) {
      end("unknown");
      throw error;
    }
  };

  const writer = async (nth: number): Promise<void> => {
    const random = fork(options.seed, `segment ${options.segment} writer ${nth}`);
    const keys: string[] = [];
    const mayGo = (): boolean => committed.size <= ((performance.now() - began) / 1_000) * options.rate && !options.isBehind();
    while (!ending.signal.aborted) {
      const client = new pg.Client({ connectionString: url });
      client.on("error", () => undefined);
      try {
        await client.connect();
        while (!ending.signal.aborted) {
          if (mayGo()) await transaction(client, random, keys, `writer ${nth}`);
          else await sleep(5);
        }
      } catch {
        await sleep(50); // the database is away; what it has committed, the ledger says
      } finally {
        await client.end().catch(() => undefined);
      }
    }
  };
  const all = Promise.all(Array.from({ length: options.writers }, (_, nth) => writer(nth)));
  return {
    ...{ committed, written, takenBack },
    async stop() {
      ending.abort();
      await all;
    },
  };
}

function partsOf(count: number, random: Random): readonly number[] {
  if (count === 1 || random.next() < 0.6) return [count];
  const first = 1 + Math.floor(random.next() * (count - 1));
  return [first, count - first];
}
