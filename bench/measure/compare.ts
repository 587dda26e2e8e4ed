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
  /** The checkout whose package the side uses. @default this one */
  readonly root?: string;
  /** The Node binary to use, if not the one that runs this. */
  readonly node?: string;
}

export interface Comparison {
  readonly question: string;
  readonly sides: readonly Side[];
  /** The part of the task that all sides share. */
  readonly task: object;
  readonly store: Place;
  readonly broker?: Place;
  /** The side that the others are compared with. */
  readonly base?: string;
  /** The most rounds to run, unless --rounds is given. */
  readonly rounds?: number;
  /** Unless --rounds is given, a round after the first starts only if it should end within this time. @default 3 */
  readonly minutes?: number;
}

/** With --beside: this checkout may use at most this multiple of the other checkout's CPU. */
const most = 1.05;
/** A round that takes longer is killed: it hangs. */
const roundMs = 10 * 60_000;
let schemas = 0;

/** Our side and, with --beside, the same side of the other checkout. */
export function ours({ beside }: Ground, side: Side): readonly Side[] {
  return [side, ...(beside === null ? [] : [{ ...side, name: "beside", root: beside }])];
}

/** Sides take turns, each round in its own process, so that other load on the machine hits all alike. The first side is the one judged. */
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

/** Compares CPU, which hardly varies. The ratio to another checkout has a bound, the ratio to a baseline is only shown. */
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
