import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { promisify } from "node:util";
import { totalCpu, type Finding, type Row, type Spread } from "../report/finding.ts";
import type { Ground, Place } from "./ground.ts";

const run = promisify(execFile);
const worker = fileURLToPath(new URL("../sides/worker.mjs", import.meta.url));
export const here = fileURLToPath(new URL("../..", import.meta.url));

/** One way to do the work: a module of bench/sides that a worker runs in a process of its own. */
export interface Side {
  readonly name: string;
  readonly side: string;
  readonly task?: object;
  /** Of which checkout the package is. @default this one */
  readonly root?: string;
  /** Another Node than the one that runs this. */
  readonly node?: string;
}

export interface Comparison {
  readonly question: string;
  readonly sides: readonly Side[];
  /** What all sides are told. */
  readonly task: object;
  readonly store: Place;
  readonly broker?: Place;
  /** The side that the others are compared with. */
  readonly base?: string;
  /** Fewer rounds than usual, unless --rounds says how many. */
  readonly rounds?: number;
  /** No round of all sides is begun that would end later than this, but for the first. @default 3 */
  readonly minutes?: number;
}

/** A change that costs more than this much of what it was is seen. */
const most = 1.05;
/** A round that takes longer hangs. */
const roundMs = 10 * 60_000;
let schemas = 0;

/** Our side, and where another checkout is given, the same of that. */
export function ours({ beside }: Ground, side: Side): readonly Side[] {
  return [side, ...(beside === null ? [] : [{ ...side, name: "beside", root: beside }])];
}

/** Rounds by turns, each in a process of its own: whatever else the machine does, it does to all sides. The first side is the one judged. */
export async function compare(ground: Ground, comparison: Comparison): Promise<Finding> {
  const { question, sides, base, minutes = 3 } = comparison;
  const wanted = ground.hurried ? Math.min(ground.rounds, comparison.rounds ?? ground.rounds) : ground.rounds;
  const rounds = new Map<Side, Record<string, number>[]>(sides.map((side) => [side, []]));
  const began = performance.now();
  const fits = (made: number): boolean => (performance.now() - began) * (1 + 1 / made) <= minutes * 60_000;
  let made = 0;
  for (; made < wanted && (made === 0 || !ground.hurried || fits(made)); made++)
    for (const side of made % 2 === 0 ? sides : sides.toReversed()) rounds.get(side)!.push(await oneRound(comparison, side));
  const rows = [...rounds].map(([{ name }, each]): Row => ({ name, rounds: each.length, measures: spreadsOf(each) }));
  const notes = made < wanted ? [`${made} of ${wanted} rounds: there was no time for more`] : [];
  return { question, rows, figures: [], notes, ...judged(rows, base), ...(base === undefined ? {} : { base }) };
}

/** Another checkout is compared by CPU, which hardly varies, and within a bound; a baseline by CPU too, and is shown. */
function judged(rows: readonly Row[], base: string | undefined): Pick<Finding, "ratio" | "bound"> {
  const beside = rows.find(({ name }) => name === "beside");
  const other = beside ?? rows.find(({ name }) => name === base);
  const [cost, against] = [rows[0], other].map((row) => (row === undefined ? null : totalCpu(row)));
  if (cost === null || cost === undefined || against === null || against === undefined) return { ratio: null, bound: null };
  return { ratio: cost / against, bound: beside === undefined ? null : { at: "most", ratio: most } };
}

async function oneRound({ task, store, broker }: Comparison, { side, root = here, node = process.execPath, ...own }: Side) {
  const processes = { database: store.pid, broker: broker?.pid ?? null };
  const given = { ...task, ...own.task, side, root, processes, store: store.url, brokerUrl: broker?.url, schema: `leg${++schemas}` };
  const { stdout } = await run(node, [worker, JSON.stringify(given)], { maxBuffer: 1 << 20, timeout: roundMs, killSignal: "SIGKILL" });
  return JSON.parse(stdout.trim().split("\n").at(-1)!) as Record<string, number>;
}

export function spreadsOf(rounds: readonly Record<string, number>[]): Record<string, Spread> {
  const names = new Set(rounds.flatMap((round) => Object.keys(round)));
  const spread = (name: string): Spread => {
    const sorted = rounds.flatMap((round) => round[name] ?? []).sort((a, b) => a - b);
    const [below, above] = [sorted[Math.ceil(sorted.length / 2) - 1]!, sorted[Math.floor(sorted.length / 2)]!];
    return { least: sorted[0]!, median: (below + above) / 2, most: sorted.at(-1)! };
  };
  return Object.fromEntries([...names].map((name) => [name, spread(name)]));
}
