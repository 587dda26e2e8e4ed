import { spawn } from "node:child_process";
import { once } from "node:events";
import { existsSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { readArguments, someOf } from "../support/arguments.ts";
import { keep, recallAll, type VersionResult } from "../evidence/files.ts";
import { nameOf, treeWith, type Tree } from "./clients.ts";
import { countsIn } from "./counts.ts";
import { filledIn, versionsPart } from "./page.ts";
import { versionRows, type VersionRow } from "./table.ts";

const usage = 'npm run test:versions -- [--only "PostgreSQL 18",…] [--evidence] | --list | --help';
const root = fileURLToPath(new URL("../..", import.meta.url));

/** Runs the row's tests, and counts them. A version that cannot be had is a skip with its reason. */
async function run(row: VersionRow): Promise<VersionResult> {
  const began = performance.now();
  const date = new Date().toISOString().slice(0, 10);
  const result = (more: Partial<VersionResult>): VersionResult => ({
    ...{ name: row.name, version: null, date, passed: 0, failed: 0, skipped: 0, why: null, failures: [] },
    seconds: Math.round((performance.now() - began) / 1_000),
    ...more,
  });
  let program = process.execPath;
  let version: string;
  let tree: Tree | null = null;
  try {
    if (row.node !== undefined) program = await row.node.find();
    if (row.clients !== undefined) tree = await treeWith(row.clients, row.beside ?? []);
    version = tree === null ? await versionOf(row, program) : tree.version(nameOf(row.clients![0]!));
  } catch (error) {
    return result({ why: (error as Error).message.trim().split("\n")[0]! });
  }
  const folder = mkdtempSync(join(tmpdir(), "waybill-versions-"));
  try {
    const report = join(folder, "report.json");
    const args = ["run", "--project", "fast", "--project", "slow", "--project", "long", "--reporter=json", `--outputFile=${report}`];
    const child = spawn(
      program,
      ["node_modules/vitest/vitest.mjs", ...args, ...(row.only === undefined ? [] : ["-t", row.only]), ...row.files],
      {
        cwd: tree?.folder ?? root,
        env: { ...process.env, WAYBILL_INSTEAD: JSON.stringify(row.instead ?? {}), ...(tree !== null && { WAYBILL_NONE_MISSING: "1" }) },
        stdio: ["ignore", "ignore", "inherit"],
      },
    );
    await once(child, "close");
    return result({ version, ...countsIn(existsSync(report) ? readFileSync(report, "utf8") : null, tree?.folder ?? root) });
  } finally {
    tree?.[Symbol.dispose]();
    rmSync(folder, { recursive: true });
  }
}

async function versionOf({ start, node }: VersionRow, program: string): Promise<string> {
  if (node !== undefined) {
    const child = spawn(program, ["--version"], { stdio: ["ignore", "pipe", "inherit"] });
    const [text] = (await once(child.stdout, "data")) as [Buffer];
    return String(text).trim().slice(1);
  }
  await using server = await start!();
  return server.version;
}

const tell = ({ name, version, passed, failed, skipped, why, seconds, failures }: VersionResult): void => {
  const counts = why === null ? `${passed} passed, ${failed} failed, ${skipped} skipped` : `skipped: ${why}`;
  console.log(`${name.padEnd(28)}${(version ?? "").padEnd(12)}${String(seconds).padStart(5)} s  ${counts}`);
  for (const failure of failures) console.log(`    ${failure}`);
};

const values = readArguments(usage, {
  only: { type: "string" },
  evidence: { type: "boolean", default: false },
  list: { type: "boolean", default: false },
});
const names = someOf(
  usage,
  "only",
  values.only,
  versionRows.map(({ name }) => name.replaceAll(",", "")),
);
const chosen = versionRows.filter(({ name }) => names === null || names.includes(name.replaceAll(",", "")));
if (values.list) for (const { name, files } of chosen) console.log(`${name.padEnd(28)}${files.length} files`);
else {
  const results: VersionResult[] = [];
  for (const row of chosen) {
    const result = await run(row);
    tell(result);
    results.push(result);
    if (values.evidence) {
      const known = new Map([...recallAll().versions, ...results].map((each) => [each.name, each]));
      const all = versionRows.flatMap(({ name }) => known.get(name) ?? []);
      keep("versions", all);
      const page = new URL("../../docs/versions.md", import.meta.url);
      writeFileSync(page, filledIn(readFileSync(page, "utf8"), versionsPart(all)));
    }
  }
  process.exitCode = results.some(({ failed }) => failed > 0) ? 1 : 0;
}
