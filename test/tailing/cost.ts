import { readdirSync, readFileSync } from "node:fs";
import pg from "pg";
import type { Sink } from "../../src/contracts/sink.ts";
import { systemClock } from "../../src/core/clock.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";

/**
 * `node scripts/run-ts.mjs test/tailing/cost.ts 15 60000 10`: what draining a backlog costs this process, PostgreSQL and its WAL, by polling and
 * by reading the log in turns, with a sink that stores at once. Arguments: version, events, events per transaction, rounds.
 */
const [version, events, perTransaction, rounds] = [15, 60_000, 10, 3].map((otherwise, at) => Number(process.argv[2 + at] ?? otherwise)) as [
  14 | 15 | 18,
  number,
  number,
  number,
];

await using server = await startLogged(version, { max_wal_size: "8GB" });
const pool = new pg.Pool({ connectionString: server.url(), max: 4 });
const ticks = 10; // ms per tick of /proc

/** CPU of all processes of this server, in ms; of those that ended only what their parent counted. */
function cpuOfServer(): number {
  let sum = 0;
  for (const pid of readdirSync("/proc").filter((name) => /^\d+$/.test(name))) {
    try {
      const stat = readFileSync(`/proc/${pid}/stat`, "utf8");
      const fields = stat
        .slice(stat.lastIndexOf(")") + 2)
        .split(" ")
        .map((field) => Number(field));
      if (Number(pid) === server.pid) sum += fields[11]! + fields[12]! + fields[13]! + fields[14]!;
      else if (fields[1] === server.pid) sum += fields[11]! + fields[12]!;
    } catch {
      continue; // it has ended
    }
  }
  return sum * ticks;
}
const walAt = async (): Promise<bigint> =>
  BigInt((await pool.query<{ at: string }>("SELECT pg_wal_lsn_diff(pg_current_wal_insert_lsn(), '0/0')::bigint AS at")).rows[0]!.at);

for (let round = 0; round < rounds; round++) {
  for (const mode of ["poll", "tail"] as const) {
    const schema = `cost_${round}_${mode}`;
    await using store = postgres({ url: server.url(), schema, connections: 6 });
    await store.schema.migrate();
    let stored = 0;
    let began = 0;
    let tails = mode === "poll";
    const sink = {
      name: "at once",
      can: { maxBytes: 1_000_000 },
      connect: () => Promise.resolve(),
      publish(flight: Parameters<Sink["publish"]>[0]) {
        if (stored === 0) began = systemClock.monotonic();
        stored += flight.length;
        return Promise.resolve(flight.map(() => ({ status: "stored" }) as const));
      },
      [Symbol.asyncDispose]: () => Promise.resolve(),
    } as unknown as Sink;
    const relay = () =>
      createRelay({
        ...{ store, sink, mode, housekeeping: false },
        observe: (event) => void (tails ||= event.type === "relay.mode" && event.mode === "tail"),
      });
    const first = relay();
    await first.start();
    while (!tails) await systemClock.sleep(20);
    await first.drain();
    await pool.query(`CREATE PROCEDURE ${schema}.fill() LANGUAGE plpgsql AS $$ BEGIN
      FOR n IN 1..${events / perTransaction} LOOP
        INSERT INTO ${schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
        SELECT 'Order', 'order-' || ((n * 7 + i) % 5000), 'OrderPlaced', repeat('x', 300) FROM generate_series(1, ${perTransaction}) AS i;
        COMMIT;
      END LOOP; END $$; SET synchronous_commit = off`);
    await pool.query(`CALL ${schema}.fill()`);
    await pool.query("CHECKPOINT");
    const second = relay();
    const [wal, cpu, used] = [await walAt(), cpuOfServer(), process.cpuUsage()];
    await second.start();
    while (stored < events) await systemClock.sleep(1);
    const ms = systemClock.monotonic() - began;
    await second.drain();
    const { user, system } = process.cpuUsage(used);
    const server2 = cpuOfServer() - cpu;
    console.log(
      `PostgreSQL ${version}, ${perTransaction} per transaction, ${mode}: ${Math.round((events / ms) * 1000)} events/s, relay ` +
        `${((user + system) / events).toFixed(1)} µs, PostgreSQL ${((server2 * 1000) / events).toFixed(1)} µs, WAL ${Math.round(Number((await walAt()) - wal) / events)} B per event`,
    );
    await store.tail!.tailer.drop();
  }
}
await pool.end();
