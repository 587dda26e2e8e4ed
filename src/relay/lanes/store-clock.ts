/** The store's clock, as far as this process knows it. */
export interface StoreClock {
  /** The store said that it was `nowMs` there, some time between the question and the answer. */
  told(nowMs: number, asked: number, answered: number): void;
  /** What the store's clock shows at this moment of the monotonic clock. Null when the store has not said. */
  at(monotonic: number): number | null;
}

/** The quickest answer is the best one. It is kept this long, since the clocks may drift apart. */
const keepMs = 60_000;

export function createStoreClock(): StoreClock {
  let known: { readonly aheadMs: number; readonly tookMs: number; readonly since: number } | null = null;
  return {
    told(nowMs, asked, answered) {
      const tookMs = answered - asked;
      if (known !== null && tookMs > known.tookMs && answered - known.since < keepMs) return;
      known = { aheadMs: nowMs - (asked + tookMs / 2), tookMs, since: answered };
    },
    at: (monotonic) => (known === null ? null : monotonic + known.aheadMs),
  };
}
