import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, expect, test } from "vitest";
import { logJson, logText, lineOf } from "../../src/core/log.ts";
import { createOutput } from "../../src/cli/output.ts";
import { tell } from "../../src/cli/verify/answer.ts";
import type { RunReport } from "../../src/cli/verify/report.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { cli } from "./build.ts";
import { inProcess } from "./in-process.ts";

/** Escape sequences, C1 controls, marks that turn the reading order, line ends: each in one text, as an insert-only role can store it. */
const marks = [
  "\u001b[2J",
  "\u007f",
  "\u0085",
  "\u009b31m",
  "\u061c",
  "\u200e",
  "\u200f",
  "\u2028",
  "\u2029",
  "\u202a",
  "\u202e",
  "\u2066",
  "\u2069",
];
const evil = `x${marks.join("")}\r\nwaybill: all is well\ty`;
const unsafe = /[\u0000-\u0009\u000b-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/;

function expectSafe(text: string): void {
  expect(text).not.toMatch(unsafe);
  expect(text).not.toMatch(/^waybill: all is well/m);
}

const home = process.cwd();
const store = ["--store", "sqlite:app.db"];
let folder = "";
beforeEach(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-hostile-"));
  process.chdir(folder);
  await ok("migrate", ...store);
  const db = (await defaultDriver())(join(folder, "app.db"));
  try {
    db.exec("PRAGMA ignore_check_constraints = ON");
    const insert = db.prepare(
      "INSERT INTO outbox (id, aggregate_type, aggregate_id, event_type, payload, headers, status, last_error, retry_count) VALUES (?, ?, ?, ?, ?, ?, ?, ?, 5)",
    );
    const headers = JSON.stringify({ [evil]: evil });
    insert.run(evil, evil, `dead ${evil}`, evil, JSON.stringify(evil) + evil, headers, "DEAD", `refused: ${evil}`);
    insert.run(`two ${evil}`, evil, `other ${evil}`, evil, JSON.stringify(evil) + evil, headers, "DEAD", `refused: ${evil}`);
  } finally {
    db.close();
  }
});
afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await inProcess(args, { cwd: folder });
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}

const commands: readonly (readonly string[])[] = [
  ["status", ...store],
  ["events", "list", ...store],
  ["events", "show", evil, ...store],
  ["dead", "list", ...store],
  ["dead", "show", evil, ...store],
  ["dead", "redrive", "--all", ...store],
  ["dead", "discard", evil, "--dry-run", ...store],
  ["purge", "--older-than", "7d", ...store],
  ["doctor", ...store, "--broker", "embedded:broker.db"],
];

test.each(commands.map((args) => [args.slice(0, 2).join(" "), args] as const))(
  "V: stored text moves no cursor, fakes no line and turns no reading order in %s",
  async (_, args) => {
    await ok("migrate", ...store, "--broker", "embedded:broker.db", "--topics", "a");
    const { stdout, stderr } = await inProcess(args, { cwd: folder });
    expectSafe(stdout + stderr);
    const json = await inProcess([...args, "--json"], { cwd: folder });
    expectSafe(json.stdout + json.stderr);
    const answer = JSON.parse(json.stdout) as unknown;
    if (args[1] === "show") expect(answer).toMatchObject({ id: evil, aggregateType: evil, headers: { [evil]: evil } }); // nothing is lost by it
    if (args[1] === "redrive") expect((answer as { ids: string[] }).ids).toContain(evil);
  },
);

test.each([
  [[evil]],
  [["events", evil]],
  [["status", `--${evil}`]],
  [["events", "show", `no ${evil}`, ...store]],
  [["status", "--store", `sqlite:${evil.replace(/[\r\n]/g, "")}`]],
  [["status", ...store, "--config", `${evil}.json`]],
])("V: words of the command line move no cursor in errors: case %#", async (args) => {
  for (const env of [{}, { WAYBILL_DEBUG: "1" }]) {
    const { stdout, stderr, code } = await inProcess(args, { cwd: folder, env });
    expect(code).not.toBe(0);
    expectSafe(stdout + stderr);
    expectSafe((await inProcess([...args, "--json"], { cwd: folder, env })).stderr);
  }
});

test("V: what a relay logs moves no cursor, as text and as JSON", () => {
  const event = {
    ...{ type: "relay.died" as const, id: evil, aggregateType: evil, aggregateId: evil, eventType: evil, topic: evil, relay: evil },
    ...{ error: evil, followers: "held" as const, failures: 5 },
  };
  const written: string[] = [];
  const out = createOutput({ write: (text) => written.push(text), colour: true }, false);
  out.line(logText(new Date(0), lineOf(event as never)!));
  out.line(logJson(new Date(0), "error", event));
  expectSafe(written.join(""));
  expect(written).toHaveLength(2);
  for (const text of written) expect(text.split("\n")).toHaveLength(2);
  expect(JSON.parse(written[1]!)).toMatchObject({ id: evil });
});

test("V: notes, verdicts and left words of verify move no cursor", () => {
  const report: RunReport = {
    ...{ run: evil, seed: 1, minutes: 1, store: evil, broker: evil, startedAt: "", held: false },
    verdicts: [{ invariant: "order", promise: "", verdict: "broken", why: evil, story: [{ id: evil }] }],
    counts: { events: 1, published: 1, effects: 1, copies: 0 },
    faults: { [evil]: 1 },
    notes: [evil],
    timeline: { seconds: 1, faults: [], throughput: { added: [], published: [], applied: [] } },
    left: { run: evil, kept: true, histories: evil, notRemoved: [evil] },
  };
  for (const json of [false, true]) {
    const written: string[] = [];
    tell(createOutput({ write: (text) => written.push(text), colour: false }, json), report, "report.html");
    expectSafe(written.join(""));
  }
  for (const file of ["report.html", "report.json"]) expectSafe(readFileSync(file, "utf8"));
  expect(JSON.parse(readFileSync("report.json", "utf8"))).toEqual(report);
});

test("V: on a terminal, stored text is shown beside what is bold, and moves nothing", () => {
  const written: string[] = [];
  const out = createOutput({ write: (text) => written.push(text), colour: true }, false);
  out.answer(null, () => [`${out.bold("title")} ${evil}`, "second"]);
  const [first, second, last] = written.join("").split("\n");
  expect(first).toMatch(/^\u001b\[1mtitle\u001b\[22m x\\u001b\[2J/);
  expectSafe(first!.replaceAll("\u001b[1m", "").replaceAll("\u001b[22m", ""));
  expect([second, last]).toEqual(["second", ""]);
});

test("V: nothing writes to the terminal past the one place that makes text visible", () => {
  const folder = join(home, "src");
  const files = ["cli", "dev", "proof"].flatMap((room) =>
    readdirSync(join(folder, room), { recursive: true, encoding: "utf8" }).map((name) => `${room}/${name}`),
  );
  const writing = files.filter(
    (name) => name.endsWith(".ts") && /\bconsole\.|\b(to|stdout|stderr|screen)\.write\(/.test(readFileSync(join(folder, name), "utf8")),
  );
  // Programs that init writes for the user; the process's own streams, the one place, the picture (whose pieces are made visible), a program that
  // says one fixed line, and sockets.
  expect(writing.sort()).toEqual([
    ...["cli/init/project.ts", "cli/main.ts", "cli/output.ts"],
    ...["dev/screen.ts", "proof/crew/child.ts", "proof/run/tcp-proxy.ts"],
  ]);
});

test("V: the program as it is installed shows no raw escape either", async () => {
  const { stdout, stderr } = await cli(["dead", "redrive", "--all", ...store], { cwd: folder });
  expect(stderr).toBe("");
  expectSafe(stdout);
});
