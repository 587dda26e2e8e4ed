import type { AckLedger } from "../../kit/ack-ledger.ts";
import type { Clock } from "../../../core/clock.ts";
import { codes, isPassing } from "../codes.ts";
import type { GroupMember } from "./member.ts";
import type { Spot } from "./spots.ts";

/** A partition whose acknowledgements are committed. */
export interface Committed extends Spot {
  readonly ledger: AckLedger<bigint>;
  /** Aborts when another member may own the partition: nothing of it is committed any more. */
  readonly ended: AbortSignal;
}

/** Commits what has been acknowledged. One request covers all partitions noted while the one before was under way. */
export interface Commits<P extends Committed> {
  /** There is more to commit. */
  note(partition: P): void;
  /** Resolves when everything noted is committed, or cannot be at the moment. */
  flush(): Promise<void>;
}

interface CommitsOptions {
  readonly member: Pick<GroupMember, "commit">;
  readonly clock: Clock;
  readonly ending: AbortSignal;
  /** Asked before each request. */
  readonly allowed: () => boolean;
  readonly refused: (code: number) => void;
}

/** The coordinator has forgotten the member. The heartbeat finds that out too. */
export const forgotten: readonly number[] = [codes.UNKNOWN_MEMBER_ID, codes.ILLEGAL_GENERATION];
const againMs = 100;

export function createCommits<P extends Committed>({ member, clock, ending, allowed, refused }: CommitsOptions): Commits<P> {
  const noted = new Set<P>();
  let running: Promise<void> | null = null;

  /** True when some partitions have to be committed again. */
  const commit = async (): Promise<boolean> => {
    const batch = [...noted].filter(({ ended }) => !ended.aborted);
    noted.clear();
    if (batch.length === 0) return false;
    const spots = batch.map(({ topic, index, ledger }) => ({ topic, index, next: ledger.settled! + 1n }));
    const answers = await member.commit(spots).catch(() => batch.map((): number => codes.COORDINATOR_NOT_AVAILABLE));
    let again = false;
    batch.forEach((partition, i) => {
      const code = answers[i]!;
      if (code === codes.NONE || partition.ended.aborted || forgotten.includes(code)) return;
      if (!isPassing(code) && code !== codes.REBALANCE_IN_PROGRESS) return refused(code);
      noted.add(partition);
      again = true;
    });
    return again;
  };
  const run = async (): Promise<void> => {
    while (noted.size > 0 && allowed()) {
      if (!(await commit())) continue;
      if (ending.aborted) break;
      await clock.sleep(againMs, ending);
    }
    running = null; // no await since the loop's check: a partition noted later begins another run
  };
  const flush = (): Promise<void> => (running ??= Promise.resolve().then(run));

  return {
    note(partition) {
      noted.add(partition);
      void flush();
    },
    flush,
  };
}
