import { expect, test } from "vitest";
import { seededRandom } from "../../src/core/random.ts";
import { createWake } from "../../src/core/wake.ts";
import { createBreaker } from "../../src/relay/breaker.ts";
import { watchDestinations } from "../../src/relay/destinations.ts";
import { createProgress } from "../../src/core/progress.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const topics = 20_000;
const probeTakesMs = 10;
const [firstProbeMs, lastProbeMs] = [20_000, 30_000];
const atOnce = 32;
/** As docs/promises.md has it: its own wait, with the jitter, and one turn of all others. */
const foundWithinMs = lastProbeMs * 1.25 + ((topics + 1) * probeTakesMs) / atOnce;

test("20,000 topics that do not exist are probed a few at a time, each in its turn, and one that comes back is found", async () => {
  const warnings: Error[] = [];
  const warned = (warning: Error): void => void warnings.push(warning);
  process.on("warning", warned);
  const clock = manualClock(Date.UTC(2030, 0, 1));
  const [changed, wake] = [createWake(), createWake()];
  const options = { clock, random: seededRandom(1), observe: () => undefined, changed };
  const breaker = createBreaker({ ...options, firstProbeMs, lastProbeMs });
  const probes = new Map<string, number>();
  const released: string[] = [];
  let [running, most, back] = [0, 0, false];
  const sink = {
    async probe(topic: string) {
      probes.set(topic, (probes.get(topic) ?? 0) + 1);
      most = Math.max(most, ++running);
      await clock.sleep(probeTakesMs);
      running -= 1;
      if (topic !== "good" || !back) throw new Error("no such topic");
    },
  };
  const ending = new AbortController();
  const watching = watchDestinations(
    {
      ...{ breaker, clock, wake, changed, storeTimeoutMs: 1_000, probeTimeoutMs: 1_000, steps: createProgress(clock) },
      sink: sink as never,
      outbox: { release: async (_: unknown, topic: string) => released.push(topic) && 0 } as never,
      coordinator: { holding: {}, trustedForMs: () => 10_000 } as never,
      onTrouble: (error) => expect.unreachable(error.message),
    },
    ending.signal,
  );
  for (let n = 0; n < topics; n++) breaker.failed(`missing-${n}`, `e${n}`, new Error("no such topic"), false);
  breaker.failed("good", "e", new Error("no such topic"), false);
  await clock.advance(30_000);
  expect(released).toEqual([]);
  back = true;
  await clock.advance(foundWithinMs);
  expect(released).toEqual(["good"]);
  expect(most).toBeLessThanOrEqual(atOnce);
  const counts = [...probes].filter(([topic]) => topic !== "good").map(([, count]) => count);
  expect(counts).toHaveLength(topics);
  expect(Math.max(...counts) - Math.min(...counts)).toBeLessThanOrEqual(3);
  ending.abort();
  await clock.advance(probeTakesMs);
  await watching;
  process.off("warning", warned);
  expect(warnings).toEqual([]);
}, 120_000);
