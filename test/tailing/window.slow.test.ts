import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { numbers, sceneOn, sessionOn, sleep, until } from "./scene.ts";

/** What a relay may have sent and not yet made durable: one fault may cause that many copies. */
describe("the window of a relay that reads the log", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));
  const window = { batch: 10, batchesInFlight: 2, leaseMs: 20_000 };

  test("while no checkpoint can be written, no more than a window is sent of one transaction", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing(window);
    await using other = await sessionOn(server.url());
    await other.query("BEGIN");
    await other.query(`SELECT 1 FROM ${scene.schema}.waybill_tail FOR UPDATE`);
    await scene.add("a", numbers(1, 300));
    await scene.add("b", numbers(1, 100));
    await until(() => scene.arrivals.length >= 10);
    await sleep(1_500);
    const sent = scene.arrivals.length;
    await other.query("ROLLBACK");
    await until(() => scene.arrivals.length >= 400);
    expect(scene.of("a")).toEqual(numbers(1, 300));
    expect(sent).toBeLessThanOrEqual(20);
  });

  test("nor of many small ones", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing(window);
    await using other = await sessionOn(server.url());
    await other.query("BEGIN");
    await other.query(`SELECT 1 FROM ${scene.schema}.waybill_tail FOR UPDATE`);
    await Promise.all(numbers(1, 200).map((id) => scene.add(id, ["x"])));
    await until(() => scene.arrivals.length >= 10);
    await sleep(1_500);
    const sent = scene.arrivals.length;
    await other.query("ROLLBACK");
    await until(() => scene.arrivals.length >= 200);
    expect(sent).toBeLessThanOrEqual(20);
  });

  test("nor of the log's events and the table's together", async () => {
    await using scene = await sceneOn(server);
    await scene.tailing(window);
    await using other = await sessionOn(server.url());
    await other.query("BEGIN");
    await other.query(`SELECT 1 FROM ${scene.schema}.waybill_tail FOR UPDATE`);
    const due = { available_at: "clock_timestamp() + interval '1 second'" };
    await Promise.all(numbers(1, 100).map((id) => scene.add(`late-${id}`, ["x"], { columns: due })));
    await Promise.all(numbers(1, 100).map((id) => scene.add(id, ["x"])));
    await sleep(3_000);
    const sent = scene.arrivals.length;
    await other.query("ROLLBACK");
    await until(() => scene.arrivals.length >= 200);
    expect(sent).toBeLessThanOrEqual(20);
  });
});
