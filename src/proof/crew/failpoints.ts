import type { Failpoint } from "../../core/failpoints.ts";

/** The failpoints of the path, and one inside a publish, which only a worker's own wrapper of the sink reaches. */
export type Point = Failpoint | "mid-batch";

export interface Points {
  hit(at: Point, ids: readonly string[]): void | Promise<void>;
}

/** `kill`: SIGKILL at the nth hit. `pause`: SIGSTOP at the nth hit, so that the whole process stands still until SIGCONT. */
export interface Fail {
  readonly at: Point;
  readonly nth: number;
  readonly do: "kill" | "pause";
}

/** The failpoints of this process. */
export function failpointsOf(fails: readonly Fail[]): Points {
  const times = new Map<string, number>();
  return {
    hit(at) {
      const nth = (times.get(at) ?? 0) + 1;
      times.set(at, nth);
      for (const fail of fails) {
        if (fail.at === at && fail.nth === nth) process.kill(process.pid, fail.do === "kill" ? "SIGKILL" : "SIGSTOP");
      }
    },
  };
}
