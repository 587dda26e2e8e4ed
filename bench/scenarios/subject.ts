import pg from "pg";
import type { Claim, Holding, Window } from "../../src/contracts/outbox-store.ts";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";

export interface Subject extends AsyncDisposable {
  readonly store: PostgresStore;
  readonly pool: pg.Pool;
  readonly schema: string;
  readonly holding: Holding;
  /** Adds events of 300 bytes, spread over many aggregates, in one statement. */
  insert(count: number): Promise<void>;
  claim(limit: number): Promise<Window>;
  publish(window: Window): Promise<void>;
  /** Claims and publishes until nothing is left; returns how many. */
  drain(batch: number): Promise<number>;
}

const all = [...Array(64).keys()];

/** A schema of its own on the server, with a relay that owns all lanes. */
export async function subjectOn(url: string, schema: string): Promise<Subject> {
  const pool = new pg.Pool({ connectionString: url, max: 8 });
  pool.on("error", () => undefined);
  const store = postgres({ pool, schema });
  await store.schema.migrate();
  await store.leases.renew("bench", 3_600_000);
  const holding: Holding = { relay: "bench", lanes: await store.leases.take("bench", all) };
  const subject: Subject = {
    store,
    pool,
    schema,
    holding,
    insert: async (count) =>
      void (await pool.query(
        `INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', 'order-' || (random() * 20000)::int, 'OrderPlaced', repeat('x', 300) FROM generate_series(1, $1::int)`,
        [count],
      )),
    claim: (limit) => store.outbox.claim(holding, { limit, open: [], narrow: false }),
    publish: async (window) => {
      if (window.id === null) return;
      await store.outbox.settle(
        holding.relay,
        window.id,
        window.claims.map((claim: Claim) => ({ claim, as: "published" })),
      );
    },
    drain: async (batch) => {
      for (let total = 0; ;) {
        const window = await subject.claim(batch);
        if (window.id === null && !window.more) return total;
        await subject.publish(window);
        total += window.claims.length;
      }
    },
    [Symbol.asyncDispose]: async () => {
      await store[Symbol.asyncDispose]();
      await pool.query(`DROP SCHEMA ${schema} CASCADE`);
      await pool.end();
    },
  };
  return subject;
}

export function percentile(values: readonly number[], share: number): number {
  const sorted = [...values].sort((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))]!;
}

export async function timed<T>(work: () => Promise<T>): Promise<{ readonly ms: number; readonly value: T }> {
  const start = performance.now();
  const value = await work();
  return { ms: performance.now() - start, value };
}
