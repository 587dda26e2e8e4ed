import { existsSync, readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Sample } from "../../verify/reads.ts";

/** The most of each that any worker had: memory in MiB, open files. */
export interface Peaks {
  rss: number;
  files: number;
}

export interface Limits {
  readonly rssMiB?: number;
  readonly files?: number;
  /** Deaths that nobody asked for. */
  readonly deaths?: number;
}

/** Where the system tells of its processes; elsewhere nothing is measured, and nothing must look as if it were. */
export const canMeasure = (proc: string): boolean => existsSync(join(proc, String(process.pid), "status"));

export function measure(peaks: Peaks, proc: string, pid: number): void {
  try {
    const rss = /^VmRSS:\s+(\d+) kB$/m.exec(readFileSync(join(proc, String(pid), "status"), "utf8"))?.[1] ?? 0;
    peaks.rss = Math.max(peaks.rss, Number(rss) / 1_024);
    peaks.files = Math.max(peaks.files, readdirSync(join(proc, String(pid), "fd")).length);
  } catch {
    // It has ended since.
  }
}

/** Null where nothing could be measured; a death is worth telling there too. */
export function samplesOf(peaks: Peaks | null, deaths: number, limits: Limits = {}): readonly Sample[] | null {
  const died: Sample = { what: "deaths that nobody asked for", value: deaths, bound: limits.deaths ?? 0 };
  if (peaks === null) return died.value > died.bound ? [died] : null;
  return [
    { what: "the memory of a worker in MiB", value: Math.round(peaks.rss), bound: limits.rssMiB ?? 400 },
    { what: "open files of a worker", value: peaks.files, bound: limits.files ?? 200 },
    died,
  ];
}

export const notMeasured = "Memory and open files were not measured: this system does not tell of its processes under /proc.";
