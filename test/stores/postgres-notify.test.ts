import { expect, test } from "vitest";
import type { Connection } from "../../src/stores/postgres/connection.ts";
import { createListening } from "../../src/stores/postgres/listen.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

test("NOTIFY goes at once after the first commit of a process, and once in 20 ms after further ones", async () => {
  const clock = manualClock();
  const sentAt: number[] = [];
  const run: Connection["run"] = async (text) => {
    expect(text).toContain("pg_notify");
    sentAt.push(clock.monotonic());
    return [];
  };
  const listening = createListening({ run } as Connection, clock);
  for (let commits = 0; commits < 50; commits++) {
    listening.wake.notify();
    await clock.advance(1);
  }
  await clock.advance(1_000);
  expect(sentAt).toEqual([0, 20, 40, 60]);
  listening.wake.notify();
  await clock.advance(1);
  expect(sentAt.at(-1)).toBe(1_050);
  await listening.close();
});
