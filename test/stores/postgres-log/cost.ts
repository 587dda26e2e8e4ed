import { systemClock } from "../../../src/core/clock.ts";
import { logCase, never, startLogged } from "./harness.ts";

/** `node scripts/run-ts.mjs test/stores/postgres-log/cost.ts 18`: what reading a backlog costs this process, and the server's sender. */
const version = Number(process.argv[2] ?? 15) as 14 | 15 | 18;
const events = Number(process.argv[3] ?? 100_000);
const rounds = 3;

await using server = await startLogged(version);
for (const perTransaction of [1, 10, 200]) {
  await using outbox = await logCase(server);
  const place = await outbox.tailer.prepare(never());
  await outbox.pool.query(`CREATE PROCEDURE ${outbox.schema}.fill() LANGUAGE plpgsql AS $$ BEGIN
    FOR n IN 1..${events / perTransaction} LOOP
      INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
      SELECT 'Order', 'order-' || (n * 7 % 5000), 'OrderPlaced', repeat('x', 300) FROM generate_series(1, ${perTransaction});
      COMMIT;
    END LOOP; END $$; SET synchronous_commit = off`);
  await outbox.pool.query(`CALL ${outbox.schema}.fill()`);
  for (let round = 0; round < rounds; round++) {
    const reading = await outbox.tailer.read(place, never());
    const pid = Number((await outbox.slot())!["active_pid"]);
    const [began, used] = [systemClock.monotonic(), process.cpuUsage()];
    let [count, batches] = [0, 0];
    for await (const { transactions } of reading) {
      batches++;
      for (const transaction of transactions) count += transaction.events.length;
      if (count >= events) break;
      if (pid === 0) throw new Error("no sender");
    }
    const { user, system } = process.cpuUsage(used);
    const ms = systemClock.monotonic() - began;
    console.log(
      `PostgreSQL ${version}, ${perTransaction} per transaction: ${((user + system) / events).toFixed(1)} µs per event (user ${(user / events).toFixed(1)}), ` +
        `${Math.round((events / ms) * 1000)} events/s, ${batches} batches`,
    );
  }
}
