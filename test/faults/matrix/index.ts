import { cpSync, mkdirSync, rmSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { misused, readArguments, someOf, wholeNumber } from "../../support/arguments.ts";
import { brokers, stores } from "./pairs.ts";
import type { Result } from "./stage.ts";

/** The fault matrix on real servers: `npm run test:faults -- --rows 1,9 --stores postgres`. */

const usage =
  "npm run test:faults -- [--rows N,…] [--stores NAME,…] [--brokers NAME,…] [--minutes N] [--seed S] [--resume] [--keep] [--evidence] | --help";
const root = fileURLToPath(new URL("../../../", import.meta.url));
const folder = join(root, ".cache/faults");

const values = readArguments(usage, {
  rows: { type: "string" },
  stores: { type: "string" },
  brokers: { type: "string" },
  minutes: { type: "string" },
  seed: { type: "string" },
  resume: { type: "boolean", default: false },
  keep: { type: "boolean", default: false },
  evidence: { type: "boolean", default: false },
});
const wantedStores = someOf(usage, "stores", values.stores, stores);
const wantedBrokers = someOf(usage, "brokers", values.brokers, [...brokers, "embedded"]);
const minutes = values.minutes === undefined ? null : wholeNumber(usage, "minutes", values.minutes, 1);
const seed = values.seed === undefined ? Math.floor(Math.random() * 2 ** 31) : wholeNumber(usage, "seed", values.seed);

// All servers and their clients are behind these: whoever asks wrongly, but for the rows, hears it before they are loaded.
const { rows } = await import("./rows.ts");
const { evidenceOf, hashOf, placesOf, resultsIn, whyOf } = await import("./results.ts");
const { createServers, play } = await import("./stage.ts");
const { built } = await import("../../cli/build.ts");
const { keep } = await import("../../evidence/files.ts");

const numbers = rows.map(({ number }) => String(number));
const wantedRows = someOf(usage, "rows", values.rows, numbers);
/** Every row once before any row twice: where time is short, each has been seen. */
const plays = rows
  .filter(({ number }) => wantedRows === null || wantedRows.includes(String(number)))
  .flatMap((row) => row.pairs.map((pair, nth) => ({ row, pair, nth })))
  .filter(({ pair }) => (wantedStores?.includes(pair.store) ?? true) && (wantedBrokers?.includes(pair.broker) ?? true))
  .sort((a, b) => a.nth - b.nth || a.row.number - b.row.number);
if (plays.length === 0) misused(usage, "no run of the matrix is on these stores and brokers with these rows");

function line(result: Result): string {
  const verdict = result.cannot === null ? (result.held ? "held" : "NOT HELD") : "cannot";
  const counts = result.counts === null ? "" : `${result.counts.events} events, ${result.counts.copies} copies, `;
  const why = whyOf(result);
  const kinds = Object.entries(result.kinds ?? {}).map(([kind, often]) => `${often} ${kind}`);
  const times = `${result.times} ×${kinds.length === 0 ? "" : ` (${kinds.join(", ")})`}`;
  return `${String(result.row).padStart(2)} ${`${result.store}+${result.broker}`.padEnd(17)} ${verdict.padEnd(8)} ${times}, ${counts}${result.seconds} s  ${result.title}${why === "" ? "" : `\n     ${why}`}${result.notes.map((note) => `\n     ${note}`).join("")}`;
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
const results = resultsIn(folder, hashOf(root));
const servers = createServers();

/** The first signal lets the run at hand put away what it has made; the second ends at once. */
const ending = new AbortController();
let code: number | null = null;
for (const [name, number] of [
  ["SIGINT", 130],
  ["SIGTERM", 143],
] as const) {
  process.on(name, () => {
    if (code !== null) process.exit(number);
    code = number;
    ending.abort();
  });
}

const until = performance.now() + (minutes ?? 90) * 60_000;
const isLate = (): boolean => performance.now() > until || ending.signal.aborted;
console.log(
  `${plays.length} runs, seed ${seed}, ${minutes === null ? "once, in 90 minutes at most" : `again and again for ${minutes} minutes`}; results in ${folder}`,
);
const failed = new Set<(typeof plays)[number]>();
let left = 0;
let played = 0;
/** Whoever gives minutes wants them used: one seed more after each. */
for (let round = 0; round === 0 || (minutes !== null && !isLate()); round++) {
  const before = played;
  for (const each of plays) {
    const { row, pair } = each;
    const known = results.get({ row: row.number, ...pair });
    if (values.resume && round === 0 && known !== null && (known.held || known.cannot !== null)) continue;
    if (isLate()) {
      if (round === 0) left += 1;
      continue;
    }
    const at = (seed + played) % 2 ** 31;
    const result = await play({ row, pair, servers, program, seed: at, pace: 1, keep: values.keep, signal: ending.signal });
    if (ending.signal.aborted) {
      left += round === 0 ? 1 : 0;
      continue;
    }
    if (result.cannot === null) played += 1;
    else if (round > 0) continue;
    // What did not hold once is not forgotten because it held later.
    if (!failed.has(each)) results.put(result);
    if (!result.held && result.cannot === null) failed.add(each);
    console.log(line(result));
  }
  if (round > 0 && played === before) break;
}
await servers[Symbol.asyncDispose]();
if (left > 0) console.log(`${left} runs are left: go on with --resume`);
const isKept = !values.evidence || code !== null || gather();
process.exit(code ?? (failed.size + left === 0 && isKept ? 0 : 1));

/** Part of the matrix is no evidence of it, nor is what held at the second try. */
function gather(): boolean {
  const { all, missing, unsteady } = evidenceOf(rows, results);
  if (all !== null) {
    keep("faults", all);
    return true;
  }
  if (missing.length > 0) {
    console.error(`no evidence was written: ${missing.length} of ${placesOf(rows).length} results are missing or are of other code:`);
    console.error(missing.join(", "));
  }
  if (unsteady.length > 0) {
    console.error("no evidence was written: these did not hold in an earlier run of the same code:");
    console.error(unsteady.join("\n"));
  }
  return false;
}
