/** What one checkpoint saw. */
interface Sight {
  /** The highest number that was drawn before the checkpoint's transaction got its id. */
  readonly drawn: bigint;
  readonly xid: bigint;
  /** The oldest transaction that was running. */
  readonly oldest: bigint;
  /** The end of the log, read after `oldest`. */
  readonly end: bigint;
}

interface Proofs {
  saw(sight: Sight): void;
  /** The highest number of which is known: whoever drew it, or a lower one, has ended, and if it committed, did so before this position. */
  reached(position: bigint): bigint;
  /** The highest number of which is known that whoever drew it, or a lower one, has ended. */
  decided(): bigint;
  reset(): void;
}

const kept = 1_000;

/**
 * Each transaction gets its id before it draws a number. So once all transactions older than a checkpoint have ended, no number can appear
 * any more that had been drawn before it; and the log has all their commits before its end as it was then.
 */
export function createProofs(): Proofs {
  let decided = 0n;
  let waiting: readonly { readonly drawn: bigint; readonly xid: bigint }[] = [];
  let proven: readonly { readonly drawn: bigint; readonly end: bigint }[] = [];
  return {
    saw({ drawn, xid, oldest, end }) {
      const ended = waiting.filter((each) => each.xid <= oldest).at(-1);
      if (ended !== undefined) {
        waiting = waiting.filter((each) => each.xid > oldest);
        decided = ended.drawn;
        proven = [...proven, { drawn: ended.drawn, end }];
      }
      if (waiting.at(-1)?.drawn !== drawn) waiting = [...waiting, { drawn, xid }];
      if (waiting.length > kept) waiting = waiting.filter((_, at) => at % 2 === 1); // a writer stays open: coarser steps will do
    },
    reached(position) {
      const passed = proven.filter(({ end }) => end <= position);
      proven = proven.filter(({ end }) => end > position);
      return passed.at(-1)?.drawn ?? 0n;
    },
    decided: () => decided,
    reset() {
      decided = 0n;
      waiting = [];
      proven = [];
    },
  };
}
