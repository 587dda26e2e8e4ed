import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { adapterOf } from "../../src/cli/adapters.ts";
import { targetOf } from "../../src/proof/run/network.ts";
import { page } from "../../src/cli/verify/page.ts";
import type { RunReport } from "../../src/cli/verify/report.ts";
import { timelineOf } from "../../src/cli/verify/timeline.ts";
import { invariants } from "../../src/proof/judge/verdict.ts";
import { added, entry, event, fault, held, sent } from "../verify/run.ts";
import { cli, start, until } from "./build.ts";
import { inProcess } from "./in-process.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-verify-test-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const readOr = (path: string): string => {
  try {
    return readFileSync(path, "utf8");
  } catch {
    return "";
  }
};

/** A run takes as long as its servers and processes do. */
const patience = { timeout: 120_000 };

describe("waybill verify", () => {
  test(
    "kills and freezes processes between a file and the embedded broker, judges every promise, and leaves nothing of its own",
    patience,
    async () => {
      const report = join(folder, "report.html");
      writeFileSync(join(folder, "shop.db"), "");
      const told = await cli(
        [
          "verify",
          "--store",
          "sqlite:./shop.db",
          "--broker",
          "embedded:./broker.db",
          "--minutes",
          "0.06",
          "--seed",
          "7",
          "--report",
          report,
        ],
        { cwd: folder },
      );
      expect(told, told.stderr + told.stdout).toMatchObject({ code: 0, stderr: "" });
      for (const invariant of invariants) expect(told.stdout).toMatch(new RegExp(`^${invariant} +holds`, "m"));
      expect(told.stdout).toMatch(/is killed|stands still/);
      expect(told.stdout).toContain("Every promise held.");
      const json = JSON.parse(readFileSync(join(folder, "report.json"), "utf8")) as RunReport;
      expect(json).toMatchObject({ seed: 7, held: true, store: "sqlite:./shop.db", left: null });
      expect(json.counts.events).toBeGreaterThan(20);
      expect(json.counts).toMatchObject({ published: json.counts.events, effects: json.counts.events });
      expect(json.timeline.faults.length).toBeGreaterThan(0);
      const unmet = json.notes.find((note) => note.includes("These did not occur: "));
      for (const name of Object.keys(json.faults)) expect(unmet).not.toContain(name);
      expect(unmet, "there are six kinds, and not the time for all").toMatch(/(kill|freeze) of (relay|subscriber|writer)/);
      expect(readFileSync(report, "utf8")).toContain("<svg");
      expect(readFileSync(join(folder, "shop.db"), "utf8"), "the user's own file is as it was").toBe("");
      expect(readdirSync(folder).filter((name) => name.includes("verify_"))).toEqual([]);
    },
  );

  test("killed while one of its processes stands still, it leaves none behind", patience, async () => {
    const args = ["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--minutes", "5"];
    const { child, result, stdout } = await start(args, { cwd: folder, env: { TMPDIR: folder } });
    await until(() => /stands still/.test(stdout()), 60_000);
    const children = readFileSync(`/proc/${child.pid}/task/${child.pid}/children`, "utf8").trim().split(" ").map(Number);
    expect(children.length).toBeGreaterThan(5);
    child.kill("SIGKILL");
    await result;
    const lives = (pid: number): boolean => /^State:\s+[^Z]/m.test(readOr(`/proc/${pid}/status`));
    await until(() => !children.some(lives), 30_000);
  });

  test.for(["SIGINT", "SIGHUP"] as const)("is stopped by %s, and leaves nothing of its own then either", patience, async (signal) => {
    const args = ["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--minutes", "5"];
    const { child, result, stdout } = await start(args, { cwd: folder });
    await until(() => stdout().includes("load …"), 60_000);
    expect(readdirSync(folder).filter((name) => name.includes("verify_")).length).toBeGreaterThan(0);
    child.kill(signal);
    const told = await result;
    expect(told, told.stderr).toMatchObject({ code: 1, signal: null });
    expect(told.stderr).toContain("[STOPPED]");
    expect(readdirSync(folder).filter((name) => name.includes("verify_"))).toEqual([]);
  });

  test.for([
    [["--store", "sqlite:./a.db"], /needs --store URL and --broker URL/],
    [["--store", "sqlite:./a.db", "--broker", "sqlite:./b.db"], /is the URL of a store/],
    [["--store", "oracle://x/y", "--broker", "embedded:./b.db"], /no adapter for oracle:/],
    [["--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--minutes", "0"], /--minutes must be minutes from 0.05 to 600/],
    [["--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--seed", "x"], /--seed must be a whole number/],
  ] as const)("wrong use is told, and nothing begins: %s", async ([args, words]) => {
    const told = await inProcess(["verify", ...args], { cwd: folder });
    expect(told.code).toBe(2);
    expect(told.stderr).toMatch(words);
  });

  test("a report that cannot be written is told before anything begins", async () => {
    const path = join(folder, "none", "report.html");
    const told = await inProcess(["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--report", path], { cwd: folder });
    expect(told).toMatchObject({ code: 2, stdout: "" });
    expect(told.stderr).toContain(path);
    expect(readdirSync(folder)).toEqual([]);
  });

  test("the verdicts are told when the report cannot be written in the end, and so is what is left", patience, async () => {
    mkdirSync(join(folder, "reports"));
    const args = ["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--minutes", "0.05", "--keep", "--json"];
    const { result } = await start([...args, "--report", "reports/report.html"], { cwd: folder });
    await until(() => readdirSync(folder).some((name) => name.includes("verify_")), 60_000);
    rmSync(join(folder, "reports"), { recursive: true });
    const told = await result;
    expect(told, told.stderr).toMatchObject({ code: 2 });
    expect(told.stderr).toContain("reports/report.html");
    const { verdicts, notes, left } = JSON.parse(told.stdout) as RunReport;
    expect(verdicts.map(({ invariant }) => invariant)).toEqual([...invariants]);
    expect(notes.join()).toContain("reports/report.html cannot be written");
    const files = readdirSync(folder).filter((name) => name.includes(left!.run));
    expect(files.length).toBeGreaterThan(1);
    expect(left).toMatchObject({ kept: true, notRemoved: [] });
    expect(readdirSync(left!.histories!)).toContain("nemesis.jsonl");
    rmSync(left!.histories!, { recursive: true });
  });

  test("a run whose processes cannot begin is over, with their logs where it says, and leaves nothing else", patience, async () => {
    const first = join(folder, "first.cjs");
    writeFileSync(first, `if (process.send !== undefined) { console.error("not here"); process.exit(7); }`);
    const args = ["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--minutes", "0.05"];
    const told = await cli(args, { cwd: folder, env: { NODE_OPTIONS: `--require ${first}` } });
    expect(told, told.stderr).toMatchObject({ code: 1, signal: null });
    const [, log, histories] =
      /ended 3 times before it was ready \(exit 7\): see ([^\s;]+); the histories are in (\S+)/.exec(told.stderr) ?? [];
    expect(readOr(log!)).toContain("not here");
    expect(readdirSync(folder)).toEqual(["first.cjs"]);
    rmSync(histories!, { recursive: true });
  });

  test("is stopped while its processes have still to begin, too, and leaves nothing", patience, async () => {
    const first = join(folder, "first.cjs");
    const stand = `require("node:fs").writeFileSync("begun", ""); Atomics.wait(new Int32Array(new SharedArrayBuffer(4)), 0, 0);`;
    writeFileSync(first, `if (process.send !== undefined) { ${stand} }`);
    const args = ["verify", "--store", "sqlite:./a.db", "--broker", "embedded:./b.db", "--minutes", "5"];
    const { child, result } = await start(args, { cwd: folder, env: { NODE_OPTIONS: `--require ${first}` } });
    await until(() => readdirSync(folder).includes("begun"), 60_000);
    child.kill("SIGINT");
    const told = await result;
    expect(told, told.stderr).toMatchObject({ code: 1, signal: null });
    expect(told.stderr).toContain("[STOPPED]");
    expect(readdirSync(folder).sort()).toEqual(["begun", "first.cjs"]);
  });

  test("a server that cannot be reached is told without its password", patience, async () => {
    const store = "postgres://someone:hunter2-secret@127.0.0.1:9/none";
    const told = await cli(["verify", "--store", store, "--broker", "embedded:./b.db", "--minutes", "0.05"], { cwd: folder });
    expect(told.code).toBe(1);
    expect(told.stderr).toContain("127.0.0.1");
    expect(told.stdout + told.stderr).not.toContain("hunter2");
  });
});

describe("the network in between", () => {
  test.for([
    ["postgres://user:p%40ss@db.example/app", { host: "db.example", port: 5432 }],
    ["mysql://root@127.0.0.1:3307/test", { host: "127.0.0.1", port: 3307 }],
    ["redis://[::1]:7000/3", { host: "::1", port: 7000 }],
    ["amqp://guest:guest@rabbit/vhost", { host: "rabbit", port: 5672 }],
    ["postgres://db/app?sslmode=disable", { host: "db", port: 5432 }],
  ] as const)("goes to the server of %s", ([url, target]) => expect(targetOf(url, adapterOf(url)?.server ?? null)).toEqual(target));

  test.for([
    ["sqlite:./a.db", /no network/],
    ["kafka://a:9092", /Kafka tells its clients/],
    ["rediss://a", /certificate/],
    ["postgres://db/app?sslmode=verify-full", /certificate/],
    ["nats://a:4222,b:4222", /more than one server/],
  ] as const)("cannot be before %s, and says why", ([url, why]) => expect(targetOf(url, adapterOf(url)?.server ?? null)).toMatch(why));
});

describe("the report", () => {
  const history = [
    ...added([event("e1", 1), event("e2", 2, { undone: true })], 1),
    sent(2.5, "ok", [held("e1")]),
    ...(["invoked", "ok"] as const).map((phase) => entry(2.6, "subscriber-1", phase, { op: "effect", consumer: "c", id: "e1" })),
    fault(3, "freeze", 6),
    entry(4.5, "nemesis", "ok", { op: "fault", fault: "freeze", target: "relay-1", copies: 6, scope: "all" }),
  ];

  test("counts what was committed, published and applied in each second, and shows each fault for as long as it lasted", () => {
    expect(timelineOf(history)).toEqual({
      seconds: 4,
      faults: [{ fault: "freeze", target: "relay-1", from: 2, until: 3.5 }],
      throughput: { added: [1, 0, 0, 0, 0], published: [0, 1, 0, 0, 0], applied: [0, 1, 0, 0, 0] },
    });
  });

  test("is one page that runs nothing, whatever a server has said", () => {
    const evil = '<script>alert("x")</script>';
    const text = page({
      ...{ run: "r", seed: 1, minutes: 1, store: evil, broker: "b", startedAt: "now", held: false, notes: [evil] },
      verdicts: [{ invariant: "order", promise: "p", verdict: "broken", why: evil, story: [{ evil }] }],
      ...{ counts: { events: 1, published: 1, effects: 1, copies: 0 }, faults: { [evil]: 1 }, timeline: timelineOf(history) },
      left: { run: evil, kept: true, histories: evil, notRemoved: [evil] },
    });
    expect(text).not.toContain("<script");
    expect(text).toContain("Not every promise held");
    expect(text).not.toMatch(/https?:\/\/(?!www\.w3\.org)/);
  });
});
