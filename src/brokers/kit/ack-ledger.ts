/**
 * Which deliveries of one log are acknowledged. Acks may come in any order. Only the position up to which all have come may be committed:
 * a commit beyond a gap would lose the deliveries in the gap. The ledger grows with the gaps only: however long one delivery waits, the
 * acknowledged deliveries behind it are one run.
 */
export interface AckLedger<Position> {
  /**
   * Notes a delivery, or all of them from `first` to `last`; positions must ascend. The returned function acknowledges it, and returns
   * whether `settled` has moved. Calling it twice is harmless.
   */
  open(first: Position, last?: Position): () => boolean;
  /** Everything noted up to here is acknowledged; null while the first is not. */
  readonly settled: Position | null;
  /** What is acknowledged beyond the first gap, ascending: the first and the last position of each run. */
  readonly beyond: readonly (readonly [Position, Position])[];
}

/** A delivery that is not acknowledged, or consecutive ones that are. */
interface Run<Position> {
  first: Position;
  last: Position;
  acked: boolean;
  before: Run<Position> | null;
  after: Run<Position> | null;
}

export function createAckLedger<Position>(): AckLedger<Position> {
  let oldest: Run<Position> | null = null;
  let newest: Run<Position> | null = null;
  let settled: Position | null = null;

  const remove = (run: Run<Position>): void => {
    const { before, after } = run;
    if (before === null) oldest = after;
    else before.after = after;
    if (after === null) newest = before;
    else after.before = before;
    run.before = run.after = null;
  };
  const acknowledge = (run: Run<Position>): boolean => {
    if (run.acked) return false;
    run.acked = true;
    if (run.after?.acked === true) {
      run.last = run.after.last;
      remove(run.after);
    }
    if (run.before?.acked === true) {
      run.first = run.before.first;
      remove(run.before);
    }
    if (run.before !== null) return false;
    settled = run.last;
    remove(run);
    return true;
  };

  return {
    get settled() {
      return settled;
    },
    get beyond() {
      const found: (readonly [Position, Position])[] = [];
      for (let run = oldest; run !== null; run = run.after) if (run.acked) found.push([run.first, run.last]);
      return found;
    },
    open(first, last = first) {
      const run: Run<Position> = { first, last, acked: false, before: newest, after: null };
      if (newest === null) oldest = run;
      else newest.after = run;
      newest = run;
      return () => acknowledge(run);
    },
  };
}
