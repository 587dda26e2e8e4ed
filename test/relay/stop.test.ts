import { expect, test } from "vitest";
import { benches, draft } from "../support/outbox.ts";
import { scene } from "./scene.ts";

test.each([
  [
    "answers that it was called off",
    (signal: AbortSignal) => new Promise<void>((resolve) => signal.addEventListener("abort", () => resolve())),
  ],
  ["ignores its signal", () => new Promise<void>(() => undefined)],
])("a stop in the middle of a publish is not the destination's trouble, when the sink %s", async (_, before) => {
  await using path = await scene(benches["memory"]!, { verdict: () => "lost-before", before: (_, signal) => before(signal) });
  const { bench, clock, relay, sink, events } = path;
  await bench.add(draft("a", 1));
  await clock.advance(100);
  expect(sink.batches).toBe(1);
  const stopped = relay.stop();
  await clock.advance(3_000);
  await stopped;
  expect(events.filter(({ type }) => type.startsWith("destination."))).toEqual([]);
  expect((await bench.operator.status()).breakers).toEqual([]);
});
