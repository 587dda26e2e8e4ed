import { describe, expect, test } from "vitest";
import { createExpiry, type Expiry } from "../../src/stores/kit/expiry.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";

const ttlMs = 9_000;
const hour = 3_600_000;

function setUp(): { clock: ManualClock; expiry: Expiry; live(renewal: string, leftMs: number): boolean } {
  const clock = manualClock(0);
  const expiry = createExpiry(clock);
  return { clock, expiry, live: (renewal, leftMs) => expiry.isLive("r", { renewal, leftMs, ttlMs }) };
}

describe("a lease of another process", () => {
  test("lives for what is left of it when it is first seen, whatever the wall clock says afterwards", async () => {
    const { clock, live } = setUp();
    expect(live("1", 6_000)).toBe(true);
    await clock.advance(5_999);
    expect(live("1", -hour), "the wall clock stepped forward").toBe(true);
    await clock.advance(1);
    expect(live("1", hour), "the wall clock stepped back").toBe(false);
  });

  test("lives no longer than it was made for, though the wall clock stepped back before it was seen", async () => {
    const { clock, live } = setUp();
    expect(live("1", hour)).toBe(true);
    await clock.advance(ttlMs);
    expect(live("1", hour)).toBe(false);
  });

  test("that is expired when it is first seen lives for half of its time more: its owner may renew, if it lives", async () => {
    const { clock, live } = setUp();
    expect(live("1", -hour)).toBe(true);
    await clock.advance(ttlMs / 3);
    expect(live("2", ttlMs), "its owner has renewed").toBe(true);
    await clock.advance(ttlMs / 3);
    expect(live("3", -hour), "a renewal that nobody saw before the clock stepped").toBe(true);
    await clock.advance(ttlMs / 2);
    expect(live("3", -2 * hour)).toBe(false);
  });

  test("that nobody wrote with a time counts as one that is expired", async () => {
    const { clock, live } = setUp();
    expect(live("1", NaN)).toBe(true);
    await clock.advance(ttlMs / 2);
    expect(live("1", NaN)).toBe(false);
  });

  test("is forgotten with its row, and is a new one when it comes back", async () => {
    const { clock, expiry, live } = setUp();
    live("1", ttlMs);
    await clock.advance(ttlMs);
    expect(live("1", ttlMs)).toBe(false);
    expiry.keep(new Set());
    expect(live("1", ttlMs)).toBe(true);
  });
});
