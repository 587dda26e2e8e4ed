import { AsyncLocalStorage } from "node:async_hooks";
import pg from "pg";
import { expect, test } from "vitest";
import { createRelay } from "../../src/relay/create-relay.ts";
import { postgres, type PgPool } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres } from "../servers/postgres.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

const rows = 1_000;
/** More than the scripted sink's messages may take. */
const headerBytes = 16_000;

interface Count {
  statements: number;
}

/** A pool that counts each statement for the call that runs it. */
function counting(pool: pg.Pool, call: AsyncLocalStorage<Count>): PgPool {
  return {
    totalCount: 0,
    end: () => Promise.resolve(),
    async connect() {
      const client = await pool.connect();
      return new Proxy(client, {
        get: (_, name) => {
          const value = Reflect.get(client, name) as unknown;
          if (typeof value !== "function") return value;
          return (...given: unknown[]): unknown => {
            const count = call.getStore();
            if (name === "query" && count !== undefined) count.statements += 1;
            return Reflect.apply(value, client, given);
          };
        },
      });
    },
  };
}

await describeWith("postgres", "1,000 events with 16 kB of headers each that cannot be carried", () => {
  test("are parked unsent, by a handful of settles of a handful of statements each", async () => {
    await using server = await startPostgres({ version: 15 });
    const pool = new pg.Pool({ connectionString: server.url(), max: 6 });
    const call = new AsyncLocalStorage<Count>();
    const store = postgres({ pool: counting(pool, call) });
    await store.schema.migrate();
    await pool.query(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, headers)
       SELECT 'Order', 'dear-' || i, 'Placed', '{}', json_build_object('note', repeat('x', $2::int)) FROM generate_series(1, $1::int) i`,
      [rows, headerBytes],
    );
    const settles: (Count & { readonly parked: number })[] = [];
    const outbox: typeof store.outbox = {
      ...store.outbox,
      settle: (relay, window, outcomes) => {
        const count = { statements: 0, parked: outcomes.filter(({ as }) => as === "parked").length };
        settles.push(count);
        return call.run(count, () => store.outbox.settle(relay, window, outcomes));
      },
    };
    const sink = scriptedSink();
    const relay = createRelay({ store: { ...store, outbox }, sink, housekeeping: false, observe: false });
    expect(await relay.runOnce()).toMatchObject({ dead: rows, failed: 0 });
    expect(sink.sent).toEqual([]);
    const told = JSON.stringify(settles);
    expect(
      settles.reduce((sum, { parked }) => sum + parked, 0),
      told,
    ).toBe(rows);
    expect(settles.length, told).toBeLessThanOrEqual(10);
    for (const { statements } of settles) expect(statements, told).toBeLessThanOrEqual(10);
    expect(
      settles.every(({ statements }) => statements > 0),
      told,
    ).toBe(true);
    const { states, dead } = await store.operator.status();
    expect(states).toMatchObject({ DEAD: rows, PENDING: 0, FAILED: 0, BLOCKED: 0 });
    expect(dead).toMatchObject([{ events: rows }]);
    await store[Symbol.asyncDispose]();
    await pool.end();
    console.log(told);
  });
});
