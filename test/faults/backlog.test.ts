import { expect, test } from "vitest";
import { duplicates, expectAllPublished, untilPublished } from "./judge.ts";
import { until, type Process } from "./processes.ts";
import { createScene } from "./scene.ts";

test("lanes won with an old backlog while newer rows of its aggregates arrive, and won again by others: order is kept, and nothing doubled", async (context) => {
  const scene = await createScene(context);
  const aggregates = scene.aggregates(40, "a");
  const traffic = { hot: aggregates, cold: aggregates };
  await scene.done(scene.writer("backlog", { ...traffic, hot: aggregates.slice(0, 5), transactions: 360, most: 80 }));
  const backlog = scene.one("SELECT max(seq) FROM outbox");
  const rows = scene.one("SELECT count(*) FROM outbox");
  expect(rows, "more rows than one claim gives lanes to").toBeGreaterThan(10_000);

  const writers = ["left", "right"].map((name) => scene.writer(name, { ...traffic, pauseMs: 2, most: 3 }));
  const options = { leaseMs: 20_000, batch: 60, pollIntervalMs: 20 };
  const published = (share: number) => (): boolean => scene.one("SELECT count(*) FROM outbox WHERE status = 'PUBLISHED'") >= rows * share;
  const owners = (): number => scene.one("SELECT count(DISTINCT owner) FROM waybill_lanes");
  await until("newer rows arrive", () => scene.one("SELECT max(seq) FROM outbox") > backlog + 20, 20_000);
  // All three at once: one alone could be done with the backlog before the last of them is there.
  const [first, second, third] = ["first", "second", "third"].map((name) => scene.relay(name, options)) as [Process, Process, Process];
  await until("all three share the lanes", () => owners() === 3, 60_000);
  await until("some of the backlog is published", published(0.4), 60_000);
  const left = scene.one("SELECT count(*) FROM outbox WHERE status = 'PENDING' AND seq <= ?", backlog);
  expect(left, "there is backlog left").toBeGreaterThan(100);
  await scene.drain(first);

  await untilPublished(scene, 120_000, `seq <= ${backlog}`);
  for (const writer of writers) await scene.stop(writer);
  await untilPublished(scene);
  await scene.drain(second, third);

  expectAllPublished(scene);
  expect(duplicates(scene), "lanes that are handed over double nothing").toEqual({ most: 0, total: 0 });
  const mixed = scene.one(
    `SELECT count(DISTINCT o.aggregate_id) FROM outbox o WHERE o.seq <= ?1 AND EXISTS (
       SELECT 1 FROM outbox n WHERE n.aggregate_type = o.aggregate_type AND n.aggregate_id = o.aggregate_id AND n.seq > ?1 AND n.created_at < o.published_at)`,
    backlog,
  );
  expect(mixed, "aggregates to which newer rows came while their backlog waited").toBeGreaterThan(10);
});
