import { mkdtempSync, readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Postgres } from "../servers/postgres.ts";
import { startLogged } from "../stores/postgres-log/harness.ts";
import { createBroker } from "./broker.ts";
import { createCrew, type Said } from "./crew.ts";
import { sceneOn, sleep, until } from "./scene.ts";

const count = 30_000;
const window = { batch: 200, batchesInFlight: 3 };

describe("a transaction of 30,000 events, read from the log", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startLogged(15);
  });
  afterAll(() => server.stop("immediate"));

  test("takes little memory, and a kill in the middle costs no more than a window", async () => {
    await using scene = await sceneOn(server, { schema: "public" });
    await using broker = await createBroker();
    const said: Said[] = [];
    const folder = mkdtempSync(join(tmpdir(), "waybill-large-"));
    await using crew = await createCrew({
      ...{ folder, url: server.url(), port: broker.port },
      options: { leaseMs: 2_000, pollIntervalMs: 20, ...window },
      heard: (each) => void said.push(each),
      gone: () => undefined,
    });
    const tails = (name: string) => (): boolean =>
      said.findLast(({ relay, line }) => relay === name && line["type"] === "relay.mode")?.line["mode"] === "tail";
    const first = crew.start("tail");
    await until(tails(first.name));
    const before = rssOf(first.pid);
    await scene.sql(
      `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload)
       SELECT 'Order', (i % 500)::text, 'Placed', json_build_object('n', i, 'pad', repeat('x', 300))::text FROM generate_series(1, ${count}) i`,
    );
    let most = before;
    while (broker.arrivals.length < count / 2) {
      most = Math.max(most, rssOf(first.pid));
      await sleep(10);
    }
    await first.kill();
    await sleep(200);
    const second = crew.start("tail");
    await until(() => broker.ids.size >= count, 100_000);
    await sleep(1_000);
    const stored = broker.arrivals.filter((arrival) => arrival.stored);
    const copies = stored.length - count;
    expect(broker.ids.size).toBe(count);
    expect(copies).toBeLessThanOrEqual(window.batch * window.batchesInFlight);
    const last = new Map<string, number>();
    const met = new Set<string>();
    for (const { id, aggregate, seq } of stored) {
      if (met.has(id)) continue;
      met.add(id);
      expect(seq).toBeGreaterThan(last.get(aggregate) ?? 0);
      last.set(aggregate, seq);
    }
    expect(most - before).toBeLessThan(100);
    await until(async () => (await scene.states())["PUBLISHED"] === count);
    expect(await second.drain()).toBe("0");
  });
});

/** In MB. */
const rssOf = (pid: number): number => Number(/VmRSS:\s+(\d+)/.exec(readFileSync(`/proc/${pid}/status`, "utf8"))![1]) / 1024;
