import fc from "fast-check";
import { describe, expect, test } from "vitest";
import { createAckLedger } from "../../src/brokers/kit/ack-ledger.ts";

describe("the ack ledger", () => {
  test("settles what is acknowledged without a gap, and knows the runs beyond, in whatever order acks come", () => {
    fc.assert(
      fc.property(
        fc.array(fc.nat({ max: 19 }), { maxLength: 60 }),
        fc.array(fc.boolean(), { minLength: 20, maxLength: 20 }),
        (order, wide) => {
          const ledger = createAckLedger<number>();
          // Positions 10, 20, …; a wide one stands for a run up to five further.
          const spans = wide.map((isWide, n) => [10 * (n + 1), 10 * (n + 1) + (isWide ? 5 : 0)] as const);
          const acks = spans.map(([first, last]) => ledger.open(first, last));
          const acked = new Set<number>();
          for (const n of order) {
            const before = ledger.settled;
            acked.add(n);
            expect(acks[n]!()).toBe(ledger.settled !== before);
            const gap = spans.findIndex((_, i) => !acked.has(i));
            expect(ledger.settled).toBe(gap === -1 ? spans.at(-1)![1] : (spans[gap - 1]?.[1] ?? null));
            const beyond: [number, number][] = [];
            for (let i = gap === -1 ? spans.length : gap; i < spans.length; i++) {
              if (!acked.has(i)) continue;
              if (acked.has(i - 1)) beyond.at(-1)![1] = spans[i]![1];
              else beyond.push([...spans[i]!]);
            }
            expect(ledger.beyond).toEqual(beyond);
          }
        },
      ),
    );
  });

  test("does not grow while one is missing: what is acknowledged behind it is one run", () => {
    const ledger = createAckLedger<number>();
    const first = ledger.open(0);
    for (let n = 1; n <= 500_000; n++) ledger.open(n)();
    expect(ledger.beyond).toEqual([[1, 500_000]]);
    expect(ledger.settled).toBe(null);
    expect(first()).toBe(true);
    expect([ledger.settled, ledger.beyond]).toEqual([500_000, []]);
  });
});
