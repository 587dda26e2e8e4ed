import { expect, test } from "vitest";
import { createSilence } from "../../src/brokers/kit/silence.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

function scene() {
  const clock = manualClock(0);
  const ending = new AbortController();
  const it = { clock, ending, heard: 0, silentAt: [] as number[], saidMs: [] as number[] };
  const silent = (ms: number): void => {
    it.silentAt.push(clock.monotonic());
    it.saidMs.push(ms);
  };
  return { it, silence: createSilence({ clock, ms: 1_000, ended: ending.signal, heard: () => it.heard, silent }) };
}

test("an answer that does not come is noticed after its own time, whatever else was awaited before", async () => {
  const { it, silence } = scene();
  const first = silence.begin();
  await it.clock.advance(700);
  const second = silence.begin();
  await it.clock.advance(200);
  first();
  await it.clock.advance(799);
  expect(it.silentAt).toEqual([]);
  await it.clock.advance(1);
  expect(it.silentAt).toEqual([1_700]);
  second();
});

test("while something is heard, or the server has said that it must wait, an answer may take as long as it likes", async () => {
  const { it, silence } = scene();
  silence.begin();
  for (let n = 0; n < 5; n++) {
    await it.clock.advance(900);
    it.heard += 1;
  }
  it.heard = NaN;
  await it.clock.advance(10_000);
  expect(it.silentAt).toEqual([]);
  it.heard = 7;
  await it.clock.advance(2_000);
  expect(it.silentAt).toHaveLength(1);
});

test("an answer may be given more time, and keeps no other from being noticed", async () => {
  const { it, silence } = scene();
  silence.begin(30_000);
  await it.clock.advance(1_500);
  silence.begin();
  await it.clock.advance(999);
  expect(it.silentAt).toEqual([]);
  await it.clock.advance(1);
  expect([it.silentAt, it.saidMs]).toEqual([[2_500], [1_000]]);
});

test("answers that came are not missed, and after a rest the next one is watched again", async () => {
  const { it, silence } = scene();
  for (let n = 0; n < 3; n++) silence.begin()();
  await it.clock.advance(5_000);
  expect(it.silentAt).toEqual([]);
  silence.begin();
  await it.clock.advance(1_000);
  expect(it.silentAt).toEqual([6_000]);
});

test("once the connection has ended nothing is watched", async () => {
  const { it, silence } = scene();
  silence.begin();
  it.ending.abort();
  await it.clock.advance(5_000);
  expect(it.silentAt).toEqual([]);
});
