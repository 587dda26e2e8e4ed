import { join } from "node:path";
import { expect, test } from "vitest";
import { built } from "../cli/build.ts";
import { legOf, narrowed, whole, type Leg } from "./plan.ts";
import { play } from "./play.ts";

test("a short leg of the soak on SQLite and the embedded broker: faults and switches happen, and every promise holds", async () => {
  const program = join(await built(), "../verify/worker.js");
  const faults: Leg["faults"] = [
    { name: "kill relay", at: 0.1, size: 0.5 },
    { name: "switch coordination", at: 0.25, size: 0.9 },
    { name: "switch handler batch", at: 0.5, size: 0.5 },
    { name: "kill subscriber", at: 0.75, size: 0.2 },
  ];
  const plain = legOf(1, 0, { stores: ["sqlite"], brokers: ["embedded"] });
  const leg: Leg = {
    ...narrowed(plain, { ...whole, seconds: 8 }),
    options: { ...plain.options, coordination: "partitioned", purge: "yes", keys: "yes", echoes: "yes", handlerBatch: 20 },
    faults,
  };
  const result = await play(leg, { program, signal: new AbortController().signal });
  expect(result, JSON.stringify(result, null, 2)).toMatchObject({ held: true, failures: [] });
  expect(result.counts?.events).toBeGreaterThan(50);
  expect(result.caused.length).toBeGreaterThan(0);
  expect(result.watched?.worstRssMiB).toBeGreaterThan(0);
});

test("a leg that is called off ends, and says so", async () => {
  const program = join(await built(), "../verify/worker.js");
  const ending = new AbortController();
  setTimeout(() => ending.abort(), 3_000);
  const leg = narrowed(legOf(1, 0, { stores: ["sqlite"], brokers: ["embedded"] }), whole);
  const result = await play(leg, { program, signal: ending.signal });
  expect(result.held).toBe(false);
  expect(result.seconds).toBeLessThan(leg.seconds);
});
