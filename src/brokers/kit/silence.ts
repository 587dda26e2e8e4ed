import type { Clock } from "../../core/clock.ts";

/** Notices that a server is silent while an answer is awaited. One timer serves all awaited answers. */
export interface Silence {
  /** An answer is awaited, for `extraMs` longer than usual, until the returned function is called. */
  begin(extraMs?: number): () => void;
}

interface SilenceOptions {
  readonly clock: Clock;
  /** How long an answer may take while nothing at all is heard. */
  readonly ms: number;
  readonly ended: AbortSignal;
  /** A slow server is not a silent one: the wait goes on while this changes, or is NaN because the server has said that it must wait. */
  heard(): number;
  /** Called once. */
  silent(ms: number): void;
}

interface AwaitedAnswer {
  readonly ms: number;
  /** What `heard()` returned at the last check, and when the next check is due. */
  heard: number;
  due: number;
}

export function createSilence({ clock, ms, ended, heard, silent }: SilenceOptions): Silence {
  const awaited = new Set<AwaitedAnswer>();
  let watching = false;
  const isLost = (answer: AwaitedAnswer, now: number): boolean => {
    if (answer.due > now) return false;
    const before = answer.heard;
    answer.heard = heard();
    answer.due = now + answer.ms;
    return answer.heard === before;
  };
  const watch = async (): Promise<void> => {
    while (awaited.size > 0) {
      const now = clock.monotonic();
      for (const answer of awaited) if (isLost(answer, now)) return silent(answer.ms);
      // No answer that is awaited from now on is due before that.
      let next = now + ms;
      for (const { due } of awaited) next = Math.min(next, due);
      await clock.sleep(next - now, ended, "idle");
      if (ended.aborted) return;
    }
    watching = false;
  };
  return {
    begin(extraMs = 0) {
      const answer = { ms: ms + extraMs, heard: heard(), due: clock.monotonic() + ms + extraMs };
      awaited.add(answer);
      if (!watching) {
        watching = true;
        void watch();
      }
      return () => void awaited.delete(answer);
    },
  };
}
