import type { ChildProcess } from "node:child_process";
import { readFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, describe, expect, test } from "vitest";
import ts from "typescript";
import { embedded } from "../src/brokers/embedded/index.ts";
import { createOutbox, createRelay, createSubscriber } from "../src/index.ts";
import { defaultDriver } from "../src/drivers/sqlite/driver.ts";
import { sqlite } from "../src/stores/sqlite/index.ts";
import { built, cli, start, until } from "./cli/build.ts";
import { cleanUp, cleanups, node, pages, patienceMs, place, programsOf, read, root, temporary } from "./docs-programs.ts";
import { available } from "./servers/available.ts";
import { startPostgres } from "./servers/postgres.ts";

beforeAll(() => built());
afterEach(cleanUp);

const isTest = (name: string): boolean => name.endsWith(".test.ts");

/** A PostgreSQL for programs that ask for one; where there is none to be had, they skip themselves. */
async function databaseFor(programs: ReadonlyMap<string, string>): Promise<Record<string, string>> {
  if (![...programs.values()].some((code) => code.includes("DATABASE_URL")) || (await available("postgres")) !== null) return {};
  const server = await startPostgres({ version: 15 });
  cleanups.push(() => server[Symbol.asyncDispose]());
  return { DATABASE_URL: server.url() };
}

async function query(path: string, sql: string): Promise<unknown[]> {
  const open = await defaultDriver();
  const db = open(path);
  try {
    db.exec("PRAGMA busy_timeout = 5000");
    return db
      .prepare(sql)
      .all()
      .map((row) => ({ ...(row as object) }));
  } finally {
    db.close();
  }
}

describe("the programs of the docs", () => {
  const withPrograms = pages.filter((page) => programsOf(page).size > 0);

  test("are there", () => {
    expect(withPrograms).toEqual(expect.arrayContaining(["deploying.md", "observing.md", "quick-start.md", "writing-an-adapter.md"]));
  });

  test("have the types that the package has", () => {
    const files = withPrograms.flatMap((page) => {
      const programs = programsOf(page);
      const folder = place(programs);
      // Prisma makes a client that is not there before the page's command has run: following the quick start shows that they fit.
      return [...programs].filter(([, code]) => !code.includes("./generated/prisma/")).map(([name]) => join(folder, name));
    });
    const config = ts.readConfigFile(join(root, "tsconfig.json"), (file) => ts.sys.readFile(file));
    const { options } = ts.parseJsonConfigFileContent({ ...config.config, include: files }, ts.sys, root);
    const program = ts.createProgram(files, options);
    const found = files.flatMap((file) => {
      const source = program.getSourceFile(file);
      return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(
        ({ messageText }) => `${file}: ${ts.flattenDiagnosticMessageText(messageText, "\n")}`,
      );
    });
    expect(found).toEqual([]);
  });
});

test("quick start: its commands and programs, in their order, take events to their effect", async () => {
  const programs = place(programsOf("quick-start.md"));
  const folder = temporary(tmpdir());
  const running: ({ readonly child: ChildProcess } & { readonly ended: Promise<unknown> })[] = [];
  const shipped = async (): Promise<unknown[]> => query(join(folder, "shipping.db"), "SELECT order_id FROM parcels");

  for (const [, kind, name = "", content = ""] of read("quick-start.md").matchAll(/^```(sh|ts)(?: (\S+))?\n([\s\S]*?)^```$/gm)) {
    if (kind === "ts") {
      const run = node([join(programs, name.replace(/\.ts$/, ".js"))], folder);
      if (name !== "shipping.ts") expect(await run.ended, name).toEqual({ code: 0, out: "" });
      else {
        running.push(run);
        // Not in shipping.db: the program's own handle waits for no lock, and fails where a reader is in its way.
        const applied = 'SELECT 1 FROM waybill_broker_consumers WHERE "offset" > 0';
        const isApplied = until(async () => (await query(join(folder, "broker.db"), applied).catch(() => [])).length > 0, patienceMs);
        await Promise.race([isApplied, run.ended.then(({ code, out }) => Promise.reject(new Error(`${name} ended with ${code}: ${out}`)))]);
      }
      continue;
    }
    for (const line of content.trim().split("\n")) {
      const [npx, waybill, ...args] = line.split(" ");
      expect([npx, waybill]).toEqual(["npx", "waybill"]);
      if (args[0] === "relay") {
        const { child, result } = await start(args, { cwd: folder });
        cleanups.push(() => child.kill("SIGKILL"));
        running.push({ child, ended: result });
      } else expect(await cli(args, { cwd: folder }), line).toMatchObject({ code: 0, stderr: "" });
    }
  }
  expect(await shipped()).toEqual([{ order_id: "o-1" }]);
  const published = "SELECT 1 FROM outbox WHERE status = 'PUBLISHED'";
  await until(async () => (await query(join(folder, "shop.db"), published)).length === 2, patienceMs);
  expect(await query(join(folder, "shop.db"), "SELECT seq, event_type, state, hold FROM outbox_events")).toEqual([
    { seq: 1, event_type: "OrderPlaced", state: "PUBLISHED", hold: null },
    { seq: 2, event_type: "OrderUpdated", state: "PUBLISHED", hold: null },
  ]);
  for (const { child, ended } of running) {
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0 });
  }
});

describe("deploying", () => {
  test("a relay inside a service publishes, and drains on SIGTERM", async () => {
    const folder = temporary(tmpdir());
    const path = join(folder, "shop.db");
    await cli(["migrate", "--store", `sqlite:${path}`], { cwd: folder });
    const event = ["--aggregate-type", "Order", "--aggregate-id", "1", "--type", "OrderPlaced", "--payload", "{}"];
    await cli(["events", "add", "--store", `sqlite:${path}`, ...event], { cwd: folder });
    const { child, ended } = node([join(place(programsOf("deploying.md")), "relay-in-service.js")], folder);
    await until(async () => (await query(path, "SELECT 1 FROM outbox WHERE status = 'PUBLISHED'")).length === 1, patienceMs);
    child.kill("SIGTERM");
    expect(await ended).toEqual({ code: 0, out: "" });
    expect(await query(path, "SELECT relay FROM waybill_relays")).toEqual([]);
  });

  test("a run from cron waits for the lanes of a relay that died", async () => {
    const folder = temporary(tmpdir());
    const store = sqlite({ path: join(folder, "shop.db") });
    cleanups.push(() => store[Symbol.asyncDispose]());
    await store.schema.migrate();
    const event = ["--aggregate-type", "Order", "--aggregate-id", "1", "--type", "OrderPlaced", "--payload", "{}"];
    await cli(["events", "add", "--store", "sqlite:shop.db", ...event], { cwd: folder });
    await store.leases.renew("died", 2_000, 0, "partitioned"); // as relays do by default
    await store.leases.take("died", [...Array(64).keys()]);
    const once = ["relay", "--store", "sqlite:shop.db", "--broker", "embedded:broker.db", "--once", "--lease", "6s", "--json"];
    const { code, stdout } = await cli(once, { cwd: folder });
    expect([code, JSON.parse(stdout)]).toEqual([0, { published: 1, failed: 0, dead: 0, held: 0 }]);
  });
});

describe("observing", () => {
  test("a service logs, counts and serves what its relay and subscriber do", async () => {
    const folder = temporary(tmpdir());
    const path = join(folder, "shop.db");
    await cli(["migrate", "--store", `sqlite:${path}`], { cwd: folder });
    const event = ["--aggregate-type", "Order", "--aggregate-id", "1", "--type", "OrderPlaced", "--payload", "{}"];
    await cli(["events", "add", "--store", `sqlite:${path}`, ...event], { cwd: folder });
    const programs = new Map([...programsOf("observing.md")].map(([name, code]) => [name, code.replace("127.0.0.1:9464", "127.0.0.1:0")]));
    const { child, ended } = node([join(place(programs), "observed-service.js")], folder);
    let out = "";
    child.stdout!.on("data", (text: string) => (out += text));
    const metrics = async (): Promise<string> => {
      const [url] = /http:\S+/.exec(out) ?? [];
      return url === undefined ? "" : (await fetch(`${url}/metrics`)).text();
    };
    await until(async () => (await metrics()).includes('waybill_applied_total{consumer="shipping"} 1'), patienceMs);
    expect(await metrics()).toMatch(/^waybill_published_total 1$/m);
    child.kill("SIGTERM");
    expect(await ended).toMatchObject({ code: 0 });
    expect(out).toContain("won 64 lanes");
  });

  test("the program that follows events runs", async () => {
    const folder = place(programsOf("observing.md"));
    expect(await node([join(folder, "follow.js")], folder).ended).toEqual({ code: 0, out: "" });
  });
});

describe("the package, as the docs say,", () => {
  test("is loaded by require() too", async () => {
    const { exports } = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as { exports: object };
    const names = Object.keys(exports).map((path) => `waybill${path.slice(1)}`);
    const script = `for (const name of ${JSON.stringify(names)}) if (Object.keys(require(name)).length === 0) throw new Error(name)`;
    const { code, out } = await node(["--no-warnings", "--eval", script], root).ended;
    expect({ code, out }).toEqual({ code: 0, out: "" });
  });

  test("has as many connections as deploying.md says", async () => {
    const folder = temporary(tmpdir());
    const open = await defaultDriver();
    const opened: string[] = [];
    const counting = (who: string) => (path: string) => {
      opened.push(who);
      return open(path);
    };
    const shop = join(folder, "shop.db");
    const store = (who: string) => sqlite({ path: shop, open: counting(who) });
    const broker = (who: string) => embedded({ path: join(folder, "broker.db"), open: counting(`${who}'s broker`) });
    const setup = sqlite({ path: shop });
    await setup.schema.migrate();
    await setup[Symbol.asyncDispose]();

    const db = open(shop);
    const outbox = createOutbox({ store: store("outbox") });
    await outbox.transaction(db, (_, events) => events.add({ aggregateType: "Order", aggregateId: "1", type: "OrderPlaced", payload: {} }));
    const relay = createRelay({ store: store("relay"), sink: broker("relay") });
    let handled = 0;
    const subscriber = createSubscriber({
      consumer: "docs",
      source: broker("subscriber"),
      inbox: store("subscriber"),
      topics: ["order.events"],
      handlers: { "*": () => void handled++ },
    });
    cleanups.push(() => Promise.all([relay.drain(), subscriber.drain()]));
    await Promise.all([relay.start(), subscriber.start()]);
    await until(() => handled === 1, patienceMs);
    db.close();
    expect(opened.sort()).toEqual(["relay", "relay's broker", "subscriber", "subscriber's broker", "subscriber's broker"]);
  });
});

describe("the tests of the docs", () => {
  test.each(pages.filter((page) => [...programsOf(page).keys()].some(isTest)))("%s: pass", async (page) => {
    const programs = programsOf(page);
    const folder = place(programs);
    const files = [...programs.keys()].filter(isTest).map((name) => join(folder, name.replace(/\.ts$/, ".js")));
    const database = await databaseFor(programs);
    const { code, out } = await node(["--test", "--test-reporter=tap", ...files], folder, database).ended;
    if ("DATABASE_URL" in database) expect(out).not.toMatch(/# SKIP DATABASE_URL/);
    const count = (what: string): number => Number(new RegExp(`^# ${what} (\\d+)$`, "m").exec(out)?.[1]);
    expect({ code, failed: count("fail") }, out).toEqual({ code: 0, failed: 0 });
    expect(count("pass")).toBeGreaterThan(page === "writing-an-adapter.md" ? 120 : 0);
    // What an adapter cannot do is shown, not left out.
    if (page === "writing-an-adapter.md") expect(out).toMatch(/# SKIP/);
  });
});
