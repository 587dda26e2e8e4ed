import { cpSync, existsSync, mkdirSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { parseArgs } from "node:util";
import { built } from "../../cli/build.ts";
import { keep } from "../../evidence/files.ts";
import { brokers, stores } from "./pairs.ts";
import { rows } from "./rows.ts";
import { createServers, play, type Result } from "./stage.ts";

/** The fault matrix on real servers: `npm run test:faults -- --rows 1,9 --stores postgres`. */

const root = fileURLToPath(new URL("../../../", import.meta.url));
const folder = join(root, ".cache/faults");

const { values } = parseArgs({
  args: process.argv.slice(2),
  options: {
    minutes: { type: "string" },
    seed: { type: "string" },
    rows: { type: "string" },
    stores: { type: "string" },
    brokers: { type: "string" },
    resume: { type: "boolean", default: false },
    keep: { type: "boolean", default: false },
    evidence: { type: "boolean", default: false },
  },
});
const list = (text: string | undefined): readonly string[] | null =>
  text === undefined ? null : text.split(",").map((each) => each.trim());
const [wantedRows, wantedStores, wantedBrokers] = [list(values.rows), list(values.stores), list(values.brokers)];
for (const [name, known, given] of [
  ["rows", rows.map(({ number }) => String(number)), wantedRows],
  ["stores", stores, wantedStores],
  ["brokers", [...brokers, "embedded"], wantedBrokers],
] as const) {
  for (const each of given ?? [])
    if (!(known as readonly string[]).includes(each)) throw new Error(`--${name} ${each} is none of ${known.join(", ")}`);
}
const minutes = Number(values.minutes ?? 90);
const seed = Number(values.seed ?? Math.floor(Math.random() * 2 ** 31));
/** Every row once before any row twice: where time is short, each has been seen. */
const plays = rows
  .filter(({ number }) => wantedRows === null || wantedRows.includes(String(number)))
  .flatMap((row) => row.pairs.map((pair, nth) => ({ row, pair, nth })))
  .filter(({ pair }) => (wantedStores?.includes(pair.store) ?? true) && (wantedBrokers?.includes(pair.broker) ?? true))
  .sort((a, b) => a.nth - b.nth || a.row.number - b.row.number);

const fileOf = (row: number, store: string, broker: string): string => join(folder, `${row}-${store}-${broker}.json`);
const read = (file: string): Result => JSON.parse(readFileSync(file, "utf8")) as Result;

function line(result: Result): string {
  const verdict = result.cannot === null ? (result.held ? "held" : "NOT HELD") : "cannot";
  const counts = result.counts === null ? "" : `${result.counts.events} events, ${result.counts.copies} copies, `;
  const why = result.cannot ?? result.failures.map(({ invariant, verdict: how, why: text }) => `${invariant} ${how}: ${text}`).join(" | ");
  return `${String(result.row).padStart(2)} ${`${result.store}+${result.broker}`.padEnd(17)} ${verdict.padEnd(8)} ${result.times} ×, ${counts}${result.seconds} s  ${result.title}${why === "" ? "" : `\n     ${why}`}${result.notes.map((note) => `\n     ${note}`).join("")}`;
}

/** A copy of the build, so that nobody's next one changes it under a run that takes an hour. */
async function ownBuild(): Promise<string> {
  await built();
  const dist = join(folder, `dist-${process.pid}`);
  cpSync(join(root, "dist"), dist, { recursive: true });
  process.on("exit", () => rmSync(dist, { recursive: true, force: true }));
  return join(dist, "cli/verify/worker.js");
}

mkdirSync(folder, { recursive: true });
const program = await ownBuild();
const servers = createServers();
process.on("SIGINT", () => void servers[Symbol.asyncDispose]().then(() => process.exit(130)));
const until = performance.now() + minutes * 60_000;
console.log(`${plays.length} runs, seed ${seed}, ${minutes} minutes at most; results in ${folder}`);
let failed = 0;
let left = 0;
for (const [at, { row, pair }] of plays.entries()) {
  const file = fileOf(row.number, pair.store, pair.broker);
  if (values.resume && existsSync(file) && (read(file).held || read(file).cannot !== null)) continue;
  if (performance.now() > until) {
    left += 1;
    continue;
  }
  const result = await play({ row, pair, servers, program, seed: (seed + at) % 2 ** 31, pace: 1, keep: values.keep });
  writeFileSync(file, `${JSON.stringify(result, null, 2)}\n`);
  if (!result.held && result.cannot === null) failed += 1;
  console.log(line(result));
}
await servers[Symbol.asyncDispose]();
if (left > 0) console.log(`${left} runs are left: go on with --resume`);
if (values.evidence) {
  const results = readdirSync(folder).filter((name) => name.endsWith(".json"));
  const all = results
    .map((name) => read(join(folder, name)))
    .sort((a, b) => a.row - b.row || a.store.localeCompare(b.store) || a.broker.localeCompare(b.broker));
  keep(
    "faults",
    all.map(({ notes, ...rest }) => ({ ...rest, notes: notes.filter((note) => !note.startsWith("histories")) })),
  );
}
process.exit(failed + left === 0 ? 0 : 1);
