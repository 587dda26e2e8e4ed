import pg from "pg";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Sink } from "../../src/contracts/sink.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { postgres, type PostgresOptions, type PostgresStore } from "../../src/stores/postgres/index.ts";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged, versions } from "../stores/postgres-log/harness.ts";

interface Arrival {
  readonly aggregate: string;
  readonly id: string;
  readonly type: string;
}

interface Scene extends AsyncDisposable {
  readonly pool: pg.Pool;
  readonly schema: string;
  readonly arrivals: Arrival[];
  readonly events: PathEvent[];
  /** Refuses events of this type, so often. */
  readonly refuse: Map<string, number>;
  store(): PostgresStore;
  relay(options?: Partial<RelayOptions>): Promise<Relay>;
  add(aggregate: string, types: readonly string[], by?: pg.Pool | pg.PoolClient): Promise<void>;
  /** Types that arrived, of one aggregate. */
  of(aggregate: string): readonly string[];
  states(): Promise<Record<string, number>>;
}

let made = 0;

async function sceneOn(server: Postgres, options: Partial<PostgresOptions> = {}): Promise<Scene> {
  const schema = `tail_${process.pid}_${++made}`;
  const pool = new pg.Pool({ connectionString: server.url(), max: 8 });
  pool.on("error", () => undefined);
  const stores: PostgresStore[] = [];
  const relays: Relay[] = [];
  const store = (): PostgresStore => {
    const one = postgres({ url: server.url(), schema, connections: 6, ...options } as PostgresOptions);
    stores.push(one);
    return one;
  };
  await store().schema.migrate();
  const arrivals: Arrival[] = [];
  const events: PathEvent[] = [];
  const refuse = new Map<string, number>();
  const sink: Sink = {
    name: "list",
    can: { maxBytes: 64_000_000 },
    connect: () => Promise.resolve(),
    publish(flight: Parameters<Sink["publish"]>[0]) {
      const stopped = new Set<string>();
      return Promise.resolve(
        flight.map(({ envelope: { id, type, aggregateId } }) => {
          if (stopped.has(aggregateId)) return { status: "skipped" } as const;
          const left = refuse.get(type) ?? 0;
          if (left > 0) {
            refuse.set(type, left - 1);
            stopped.add(aggregateId);
            return { status: "refused", blame: "event", retryable: true, error: new Error("not now") } as const;
          }
          arrivals.push({ aggregate: aggregateId, id, type });
          return { status: "stored" } as const;
        }),
      );
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  } as unknown as Sink;
  return {
    ...{ pool, schema, arrivals, events, refuse, store },
    async relay(more = {}) {
      const one = createRelay({
        store: store(),
        sink,
        mode: "tail",
        leaseMs: 2_000,
        pollIntervalMs: 20,
        retry: { delaysMs: [50, 50, 50] },
        housekeeping: false,
        observe: (event) => void events.push(event),
        ...more,
      });
      await one.start();
      relays.push(one);
      return one;
    },
    async add(aggregate, types, by = pool) {
      await by.query(
        `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', $1, type, '{}' FROM unnest($2::text[]) WITH ORDINALITY AS t (type, place) ORDER BY place`,
        [aggregate, types],
      );
    },
    of: (aggregate) => arrivals.filter((arrival) => arrival.aggregate === aggregate).map(({ type }) => type),
    async states() {
      const { rows } = await pool.query<{ state: string; n: string }>(
        `SELECT state, count(*) AS n FROM ${schema}.outbox_events GROUP BY 1`,
      );
      return Object.fromEntries(rows.map(({ state, n }) => [state, Number(n)]));
    },
    async [Symbol.asyncDispose]() {
      await Promise.all(relays.map((each) => each.stop().catch(() => undefined)));
      await stores[0]!.tail!.tailer.drop().catch(() => undefined);
      await Promise.all(stores.map((each) => each[Symbol.asyncDispose]()));
      await pool.end();
    },
  };
}

const until = async (what: () => boolean | Promise<boolean>, ms = 30_000): Promise<void> => {
  const end = Date.now() + ms;
  while (!(await what())) {
    if (Date.now() > end) throw new Error(`it did not become so within ${ms} ms: ${what.toString()}`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
};

const tails = ({ events }: Scene): boolean => modeOf(events) === "tail";
const modeOf = (events: readonly PathEvent[]): string | undefined => {
  const last = events.findLast((event) => event.type === "relay.mode");
  return last?.type === "relay.mode" ? last.mode : undefined;
};
const numbers = (from: number, to: number): readonly string[] => Array.from({ length: to - from + 1 }, (_, at) => String(from + at));

describe.each(versions)("a relay that reads the log of %s", (_, version) => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(version);
  });
  afterAll(() => server.stop("immediate"));

  test("publishes what was there before, and what is committed from then on, without a write to the outbox", async () => {
    await using scene = await sceneOn(server);
    await scene.add("a", numbers(1, 10));
    await scene.relay();
    await until(() => tails(scene));
    await scene.add("a", numbers(11, 300));
    await scene.add("b", numbers(1, 100));
    await until(() => scene.of("a").length >= 300 && scene.of("b").length >= 100);
    expect(scene.of("a")).toEqual(numbers(1, 300));
    expect(scene.of("b")).toEqual(numbers(1, 100));
    await until(async () => (await scene.states())["PUBLISHED"] === 400);
    // The ten that were there before came by polling. Any write since would show in a row's xmax, or as a new version of it.
    const { rows } = await scene.pool.query(`SELECT count(*) AS n FROM ${scene.schema}.outbox WHERE status = 'PENDING' AND xmax = 0`);
    expect(rows).toEqual([{ n: "390" }]);
  });

  test("keeps the order of an aggregate whose event fails, and of no other", async () => {
    await using scene = await sceneOn(server);
    await scene.relay();
    await until(() => tails(scene));
    scene.refuse.set("3", 2);
    await scene.add("a", numbers(1, 5));
    await scene.add("b", ["x", "y"]);
    await scene.add("a", numbers(6, 20));
    await until(() => scene.of("a").length >= 20 && scene.of("b").length >= 2);
    expect(scene.of("a")).toEqual(numbers(1, 20));
    await until(async () => (await scene.states())["PUBLISHED"] === 22);
    // It has left its detour.
    const { rows } = await scene.pool.query(`SELECT 1 FROM ${scene.schema}.waybill_holds`);
    expect(rows).toEqual([]);
  });

  test("reads a large event from the table, in its place", async () => {
    await using scene = await sceneOn(server);
    await scene.relay();
    await until(() => tails(scene));
    await scene.add("a", numbers(1, 3));
    await scene.pool.query(
      `INSERT INTO ${scene.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'a', '4', '"' || repeat('x', 12000000) || '"')`,
    );
    await scene.add("a", numbers(5, 30));
    await scene.add("b", numbers(1, 5));
    await until(() => scene.of("a").length >= 30 && scene.of("b").length >= 5);
    expect(scene.of("a")).toEqual(numbers(1, 30));
    await until(async () => (await scene.states())["PUBLISHED"] === 35);
  });

  test("hands over to a relay that polls, and takes over from it, without a copy", async () => {
    await using scene = await sceneOn(server);
    let next = 1;
    const more = async (count: number): Promise<void> => {
      await scene.add("a", numbers(next, next + count - 1));
      next += count;
    };
    for (const mode of ["tail", "poll", "tail", "tail", "poll", "auto"] as const) {
      const relay = await scene.relay({ mode });
      if (mode !== "poll") await until(() => tails(scene));
      await more(100);
      await until(() => scene.of("a").length >= next - 51);
      await more(50);
      await relay.drain();
      scene.events.length = 0;
    }
    await scene.relay();
    await until(() => scene.of("a").length >= next - 1);
    expect(scene.of("a")).toEqual(numbers(1, next - 1));
    await until(async () => (await scene.states())["PUBLISHED"] === next - 1);
  });
});
