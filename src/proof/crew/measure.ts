import { readdirSync } from "node:fs";
import type { Sample } from "../judge/reads.ts";

/** What a worker uses: memory in MiB, and open files where the system reports them. */
export interface Uses {
  readonly rss: number;
  readonly files: number | null;
}

export interface Limits {
  readonly rssMiB?: number;
  readonly files?: number;
  /** Unexpected deaths. */
  readonly deaths?: number;
}

/** The use of this process. Null while it cannot open any more files, since its memory is read from one. Windows has no such folder. */
export function usesOf(folder = "/dev/fd", memory: () => number = process.memoryUsage.rss): Uses | null {
  let rss;
  try {
    rss = Math.round(memory() / 2 ** 20);
  } catch {
    return null;
  }
  try {
    return { rss, files: readdirSync(folder).length };
  } catch {
    return { rss, files: null };
  }
}

/** The larger of each. */
export function most(a: Uses | null, b: Uses | null): Uses | null {
  if (a === null || b === null) return a ?? b;
  const files = Math.max(a.files ?? -1, b.files ?? -1);
  return { rss: Math.max(a.rss, b.rss), files: files < 0 ? null : files };
}

/** Null where no process reported, so that nothing looks as if it were measured. Too many deaths are reported even then. */
export function samplesOf(peaks: Uses | null, deaths: number, limits: Limits = {}): readonly Sample[] | null {
  const died: Sample = { what: "deaths that nobody asked for", value: deaths, bound: limits.deaths ?? 0 };
  if (peaks === null) return died.value > died.bound ? [died] : null;
  const files: Sample[] = peaks.files === null ? [] : [{ what: "open files of a worker", value: peaks.files, bound: limits.files ?? 200 }];
  return [{ what: "the memory of a worker in MiB", value: peaks.rss, bound: limits.rssMiB ?? 400 }, ...files, died];
}

export const filesUntold = "Open files were not measured: this system does not tell of them under /dev/fd.";
