import type { Failpoint } from "../../core/failpoints.ts";

/** Those of the path, and one that lies inside a publish: only a wrapper of a worker's own comes by it. */
export type Point = Failpoint | "mid-batch";

export interface Points {
  hit(at: Point, ids: readonly string[]): void | Promise<void>;
}

/** `kill`: the process is gone at the nth time it comes by. `pause`: it stands still as a whole, until it is let go on. */
export interface Fail {
  readonly at: Point;
  readonly nth: number;
  readonly do: "kill" | "pause";
}

/** Those of this process. */
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
