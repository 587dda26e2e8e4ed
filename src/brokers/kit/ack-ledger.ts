/**
 * Which deliveries of one log are acknowledged. Acks may come in any order; only the position up to which all of them
 * have come may be committed, since a commit beyond a gap would lose what is in the gap. It holds no more than the gaps:
 * however long one delivery waits, what was acknowledged behind it is one run.
 */
export interface AckLedger<Position> {
  /**
   * Notes a delivery, or all of them from `first` to `last`; positions must ascend. The answer acknowledges it, and says
   * whether `settled` has moved; twice is harmless.
   */
  open(first: Position, last?: Position): () => boolean;
  /** Everything noted up to here is acknowledged; null while the first is not. */
  readonly settled: Position | null;
  /** What is acknowledged beyond the first gap, ascending: the first and the last position of each run. */
  readonly beyond: readonly (readonly [Position, Position])[];
}

/** A delivery that is not acknowledged, or as many as are acknowledged in a row. */
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
