import { readdirSync, readFileSync } from "node:fs";
import type { Stage } from "../faults/matrix/row.ts";

/** What one process used at one time. */
export interface Use {
  readonly atMs: number;
  readonly rssMiB: number;
  readonly files: number;
}

export interface Watched {
  /** By process and pid: a life that ends takes its memory with it. */
  readonly lives: ReadonlyMap<string, readonly Use[]>;
  readonly worstLagMs: number;
  readonly worstRssMiB: number;
  readonly worstFiles: number;
}

const everyMs = 1_000;

/** Samples every worker and the age of the oldest unpublished event, for as long as the load lasts. */
export function watch(stage: Stage): { stop(): Promise<Watched> } {
  const ending = new AbortController();
  const { signal } = ending;
  const lives = new Map<string, Use[]>();
  const began = stage.clock.monotonic();
  let worstLagMs = 0;
  const run = async (): Promise<void> => {
    while (!signal.aborted && !stage.signal.aborted) {
      for (const { name, pid } of stage.workers.all) {
        const use = pid === null ? null : useOf(pid, stage.clock.monotonic() - began);
        if (use !== null) lives.set(`${name} (${pid})`, [...(lives.get(`${name} (${pid})`) ?? []), use]);
      }
      // While the store is away, the next look finds the lag that has grown meanwhile.
      const lag = await stage.ground.store.operator.status().then(({ oldestUnpublishedMs }) => oldestUnpublishedMs, ignored);
      worstLagMs = Math.max(worstLagMs, lag ?? 0);
      await stage.clock.sleep(everyMs, signal);
    }
  };
  const running = run();
  return {
    async stop() {
      ending.abort();
      await running;
      const all = [...lives.values()].flat();
      const most = (of: (use: Use) => number): number => all.reduce((worst, use) => Math.max(worst, of(use)), 0);
      return { lives, worstLagMs, worstRssMiB: most(({ rssMiB }) => rssMiB), worstFiles: most(({ files }) => files) };
    },
  };
}

const ignored = (): null => null;

/** Null where the system does not tell, or the process has ended. */
export function useOf(pid: number | "self", atMs: number): Use | null {
  try {
    const rss = Number(/^VmRSS:\s*(\d+) kB/m.exec(readFileSync(`/proc/${pid}/status`, "utf8"))?.[1]);
    return Number.isFinite(rss) ? { atMs, rssMiB: Math.round(rss / 1_024), files: readdirSync(`/proc/${pid}/fd`).length } : null;
  } catch {
    return null;
  }
}

/** A life is judged by its last quarter against its second, so that neither its start nor one peak counts. */
const fewest = 24;
const bounds = { rssMiB: 96, files: 24 } as const;

/**
 * Growth that looks like a leak: the least that a process used in its last quarter is far above the most that it used in its second. Reading
 * ends and begins of garbage collection need no care that way.
 */
export function growthIn(lives: Watched["lives"]): readonly string[] {
  return [...lives].flatMap(([name, uses]) => {
    if (uses.length < fewest) return [];
    const quarter = Math.floor(uses.length / 4);
    const [before, after] = [uses.slice(quarter, 2 * quarter), uses.slice(-quarter)];
    return (["rssMiB", "files"] as const).flatMap((what) => {
      const from = Math.max(...before.map((use) => use[what]));
      const to = Math.min(...after.map((use) => use[what]));
      const unit = what === "files" ? "open files" : "MiB of memory";
      return to - from > bounds[what] ? [`${name} grew from ${from} to ${to} ${unit}`] : [];
    });
  });
}

/** The soak itself works on every leg with the adapters: what it does not give back adds up. Null: no growth, or too few legs to say. */
export function growthOver(uses: readonly Use[]): string | null {
  if (uses.length < 6) return null;
  const [early, late] = [uses[2]!, uses.at(-1)!];
  const legs = uses.length - 3;
  const rising = uses.slice(2).every(({ files }, at, all) => at === 0 || files >= all[at - 1]!.files);
  return rising && late.files - early.files >= 2 * legs
    ? `the soak's own open files grew from ${early.files} to ${late.files} in ${legs} legs`
    : null;
}
