import pg from "pg";
import type { PublishResult, Sink } from "../../src/contracts/sink.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { postgres, type PostgresOptions, type PostgresStore } from "../../src/stores/postgres/index.ts";
import type { Postgres } from "../servers/postgres.ts";

export interface Arrival {
  readonly topic: string;
  readonly aggregate: string;
  readonly id: string;
  readonly type: string;
  readonly at: number;
}

/** Null: stored. "event" and "destination" say whom the refusal blames; a number answers so many ms later. */
export type Answer = "event" | "destination" | number | null;

/** An outbox, relays that read its log, and a broker that remembers what came. */
export interface Scene extends AsyncDisposable {
  readonly pool: pg.Pool;
  readonly schema: string;
  readonly arrivals: Arrival[];
  readonly events: PathEvent[];
  /** What the broker answers to an event; by itself it stores everything. */
  answer: (event: Omit<Arrival, "at">) => Answer;
  store(): PostgresStore;
  relay(options?: Partial<RelayOptions>): Promise<Relay>;
  /** A relay that reads the log by the time this resolves. */
  tailing(options?: Partial<RelayOptions>): Promise<Relay>;
  /** Events of one aggregate, `columns` being further columns of each and their SQL. */
  add(
    aggregate: string,
    types: readonly string[],
    options?: { readonly by?: Queries; readonly columns?: Readonly<Record<string, string>> },
  ): Promise<void>;
  sql(text: string, values?: readonly unknown[]): Promise<Record<string, unknown>[]>;
  /** Types that arrived, of one aggregate. */
  of(aggregate: string): readonly string[];
  mode(): string | undefined;
  states(): Promise<Record<string, number>>;
}

type Queries = Pick<pg.Pool | pg.Client, "query">;

let made = 0;

export interface SceneOptions extends Partial<Omit<PostgresOptions, "url">> {
  readonly url?: string;
}

export async function sceneOn(
  server: Postgres,
  { url = server.url(), schema = `tail_${process.pid}_${++made}`, ...options }: SceneOptions = {},
): Promise<Scene> {
  const pool = new pg.Pool({ connectionString: url, max: 8 });
  pool.on("error", () => undefined);
  const stores: PostgresStore[] = [];
  const relays: Relay[] = [];
  const store = (): PostgresStore => {
    const one = postgres({ url, schema, connections: 6, ...options } as PostgresOptions);
    stores.push(one);
    return one;
  };
  await store().schema.migrate();
  const arrivals: Arrival[] = [];
  const events: PathEvent[] = [];
  const refused = (blame: "event" | "destination"): PublishResult => ({
    status: "refused",
    blame,
    retryable: true,
    error: new Error("not now"),
  });
  const sink = {
    name: "list",
    can: { maxBytes: 1_000_000 },
    connect: () => Promise.resolve(),
    probe: async (topic: string) => {
      if (scene.answer({ topic, aggregate: "", id: "", type: "probe" }) !== null) throw new Error("not well");
    },
    async publish(flight: Parameters<Sink["publish"]>[0]) {
      const stopped = new Set<string>();
      const results = flight.map(
        ({ topic, envelope: { id, type, aggregateId } }): { readonly result: PublishResult; readonly ms: number } => {
          if (stopped.has(aggregateId)) return { result: { status: "skipped" }, ms: 0 };
          const answer = scene.answer({ topic, aggregate: aggregateId, id, type });
          if (answer === "event" || answer === "destination") {
            stopped.add(aggregateId);
            return { result: refused(answer), ms: 0 };
          }
          arrivals.push({ topic, aggregate: aggregateId, id, type, at: Date.now() });
          return { result: { status: "stored" }, ms: answer ?? 0 };
        },
      );
      const ms = Math.max(0, ...results.map((each) => each.ms));
      if (ms > 0) await sleep(ms);
      return results.map(({ result }) => result);
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  } as unknown as Sink;
  const scene: Scene = {
    ...{ pool, schema, arrivals, events, store },
    answer: () => null,
    async relay(more = {}) {
      const one = createRelay({
        ...{
          store: store(),
          sink,
          mode: "tail",
          leaseMs: 2_000,
          pollIntervalMs: 20,
          retry: { delaysMs: [50, 50, 50] },
          housekeeping: false,
        },
        observe: (event) => void events.push(event),
        ...more,
      });
      await one.start();
      relays.push(one);
      return one;
    },
    async tailing(more) {
      events.length = 0;
      const one = await scene.relay(more);
      await until(() => scene.mode() === "tail");
      return one;
    },
    async add(aggregate, types, { by = pool, columns = {} } = {}) {
      const [names, values] = [Object.keys(columns), Object.values(columns)].map((each) => each.map((one) => `, ${one}`).join(""));
      await by.query(
        `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload${names}) SELECT 'Order', $1, type, '{}'${values}
         FROM unnest($2::text[]) WITH ORDINALITY AS t (type, place) ORDER BY place`,
        [aggregate, types],
      );
    },
    sql: async (text, values = []) => (await pool.query<Record<string, unknown>>(text, [...values])).rows,
    of: (aggregate) => arrivals.filter((arrival) => arrival.aggregate === aggregate).map(({ type }) => type),
    mode() {
      const last = events.findLast((event) => event.type === "relay.mode");
      return last?.type === "relay.mode" ? last.mode : undefined;
    },
    async states() {
      const rows = await scene.sql(`SELECT state, count(*) AS n FROM ${schema}.outbox_events GROUP BY 1`);
      return Object.fromEntries(rows.map(({ state, n }) => [String(state), Number(n)]));
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(relays.map((each) => each.stop().catch(() => undefined)));
      await stores[0]!.tail!.tailer.drop().catch(() => undefined);
      await Promise.all(stores.map((each) => each[Symbol.asyncDispose]()));
      await pool.end();
    },
  };
  return scene;
}

export const sleep = (ms: number): Promise<void> => new Promise((resolve) => setTimeout(resolve, ms));

export async function until(what: () => boolean | Promise<boolean>, ms = 30_000): Promise<void> {
  const end = Date.now() + ms;
  while (!(await what())) {
    if (Date.now() > end) throw new Error(`it did not become so within ${ms} ms: ${what.toString()}`);
    await sleep(20);
  }
}

export const numbers = (from: number, to: number): readonly string[] => Array.from({ length: to - from + 1 }, (_, at) => String(from + at));

/** A session of its own, with an open transaction until it is ended. */
export async function sessionOn(url: string): Promise<pg.Client & AsyncDisposable> {
  const client = new pg.Client({ connectionString: url });
  client.on("error", () => undefined);
  await client.connect();
  return Object.assign(client, { [Symbol.asyncDispose]: () => client.end().catch(() => undefined) });
}
