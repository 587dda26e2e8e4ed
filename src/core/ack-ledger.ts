/**
 * Which deliveries of one log are acknowledged. Acks may come in any order; only the position up to which all of them
 * have come may be committed, since a commit beyond a gap would lose what is in the gap.
 */
export interface AckLedger<Position> {
  /** Notes a delivery; positions must ascend. The answer acknowledges it, and says whether `settled` has moved; twice is harmless. */
  open(position: Position): () => boolean;
  /** Everything noted up to here is acknowledged; null while the first is not. */
  readonly settled: Position | null;
}

export function createAckLedger<Position>(): AckLedger<Position> {
  let waiting: { readonly position: Position; acked: boolean }[] = [];
  let head = 0;
  let settled: Position | null = null;
  return {
    get settled() {
      return settled;
    },
    open(position) {
      const entry = { position, acked: false };
      waiting.push(entry);
      return () => {
        entry.acked = true;
        const before = head;
        for (let next = waiting[head]; next?.acked === true; next = waiting[++head]) settled = next.position;
        const moved = head > before;
        // Cut now and then: a shift for every entry would move the whole array each time.
        if (head > 1_000 && head > waiting.length / 2) {
          waiting = waiting.slice(head);
          head = 0;
        }
        return moved;
      };
    },
  };
}
