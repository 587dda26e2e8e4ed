import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import type { Result } from "./build.ts";
import { inProcess } from "./in-process.ts";

const home = process.cwd();
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-path-"));
  process.chdir(folder);
});
afterEach(() => {
  process.chdir(home);
  rmSync(folder, { recursive: true, force: true });
});

const run = (...args: string[]): Promise<Result> => inProcess(args, { cwd: folder });
const store = ["--store", "sqlite:app.db"];
const broker = ["--broker", "embedded:broker.db"];

async function ok(...args: string[]): Promise<string> {
  const { code, stdout, stderr } = await run(...args);
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return stdout;
}
const json = async <T = Record<string, unknown>>(...args: string[]): Promise<T> => JSON.parse(await ok(...args, "--json")) as T;

async function add(aggregateId: string, payload: unknown, ...more: string[]): Promise<string> {
  const { id } = await json<{ id: string }>(
    "events",
    "add",
    ...store,
    "--aggregate-type",
    "Order",
    "--aggregate-id",
    aggregateId,
    "--type",
    "OrderPlaced",
    "--payload",
    JSON.stringify(payload),
    ...more,
  );
  return id;
}

/** Judged from the tables, never from what the program says about itself. */
async function rows(file: string, sql: string): Promise<Record<string, unknown>[]> {
  const db = (await defaultDriver())(join(folder, file));
  try {
    return (db.prepare(sql).all() as Record<string, unknown>[]).map((row) => ({ ...row }));
  } finally {
    db.close();
  }
}
const statuses = (): Promise<Record<string, unknown>[]> =>
  rows("app.db", "SELECT aggregate_id AS aggregate, status FROM outbox ORDER BY seq");

interface Status {
  states: Record<string, number>;
  dead: { error: string; events: number }[];
}

describe("the path", () => {
  beforeEach(() => ok("migrate", ...store, ...broker, "--topics", "order.events"));

  test("goes from add to the broker", async () => {
    const ids = [await add("1", { n: 1 }), await add("2", { n: 2 }), await add("1", { n: 3 })];
    expect(await json<Status>("status", ...store)).toMatchObject({ states: { PENDING: 3, PUBLISHED: 0 } });
    expect(await json("relay", ...store, ...broker, "--once")).toEqual({ published: 3, failed: 0, dead: 0, held: 0 });
    expect(await statuses()).toEqual(["1", "2", "1"].map((aggregate) => ({ aggregate, status: "PUBLISHED" })));
    expect(await json("status", ...store)).toMatchObject({
      states: { PENDING: 0, PUBLISHING: 0, PUBLISHED: 3, FAILED: 0, BLOCKED: 0, DEAD: 0, DISCARDED: 0 },
      oldestUnpublishedMs: null,
      relays: [],
      lanes: { total: 64, owned: 0, free: 64 },
      holds: { aggregates: 0, blocked: 0, list: [] },
      breakers: [],
      window: { events: 0, suspects: 0 },
      dead: [],
      schemaVersion: 1,
    });
    const { events } = await json<{ events: { id: string; seq: string }[] }>("events", "list", ...store);
    expect(events.map(({ id, seq }) => [id, seq])).toEqual(ids.map((id, i) => [id, String(i + 1)]).reverse());
    expect(await json("relay", ...store, ...broker, "--once")).toEqual({ published: 0, failed: 0, dead: 0, held: 0 });
  });

  test("keeps everything that was given to an event", async () => {
    const id = "01ARZ3NDEKTSV4RRFFQ69G5FAV";
    await add(
      "1",
      { text: "é\u2028", big: 1 },
      "--id",
      id,
      "--event-version",
      "3",
      "--header",
      "tenant=a=b",
      "--header",
      "lang=fr",
      "--idempotency-key",
      "k1",
      "--available-at",
      "2030-01-31T12:00:00Z",
    );
    expect(await json("events", "show", id, ...store)).toMatchObject({
      id,
      seq: "1",
      payload: '{"text":"é\u2028","big":1}',
      eventVersion: 3,
      headers: { tenant: "a=b", lang: "fr" },
      idempotencyKey: "k1",
      availableAt: "2030-01-31T12:00:00.000Z",
      state: "PENDING",
    });
    expect(await json("relay", ...store, ...broker, "--once")).toMatchObject({ published: 0 });
    const again = await json(
      "events",
      "add",
      ...store,
      "--aggregate-type",
      "Order",
      "--aggregate-id",
      "1",
      "--type",
      "T",
      "--payload",
      "1",
      "--idempotency-key",
      "k1",
    );
    expect(again).toEqual({ id, duplicate: true });
    expect(await ok("events", "show", id, ...store)).toMatch(/header tenant +a=b/);
  });

  test("shows where an event goes, by the route that is given", async () => {
    const id = await add("1", { n: 1 });
    expect(await json("events", "show", id, ...store)).toMatchObject({ id, topic: "order.events" });
    expect(await ok("events", "show", id, ...store)).toMatch(/^topic +order\.events$/m);
    expect(await json("events", "show", id, ...store, "--route", "{event_type}")).toMatchObject({ topic: "OrderPlaced" });
    expect(await json("events", "show", id, ...store, "--route", "{header:tenant}")).toMatchObject({ topic: null });
    expect(await ok("events", "show", id, ...store, "--route", "{header:tenant}")).toMatch(/^topic +none: .*no header "tenant"/m);
  });

  test("a large payload does not flood the terminal, and --json has the whole of it", async () => {
    const text = "x".repeat(200_000);
    const id = await add("1", { text });
    const shown = await ok("events", "show", id, ...store);
    expect(shown.length).toBeLessThan(8_000);
    expect(shown).toContain("the beginning of 200011 bytes; --json has the whole payload");
    expect(await json("events", "show", id, ...store)).toMatchObject({ payload: JSON.stringify({ text }) });
  });

  test("lists by state, type and aggregate, a page at a time", async () => {
    for (let n = 1; n <= 5; n++) await add(String(n % 2), { n });
    const seqs = async (...more: string[]): Promise<string[]> =>
      (await json<{ events: { seq: string }[] }>("events", "list", ...store, ...more)).events.map(({ seq }) => seq);
    expect(await seqs("--aggregate-id", "1")).toEqual(["5", "3", "1"]);
    expect(await seqs("--limit", "2")).toEqual(["5", "4"]);
    expect(await seqs("--limit", "2", "--before-seq", "4")).toEqual(["3", "2"]);
    expect(await seqs("--state", "pending", "--type", "OrderPlaced", "--aggregate-type", "Order")).toHaveLength(5);
    expect(await seqs("--state", "DEAD")).toEqual([]);
  });

  test("routes by a template", async () => {
    await add("1", {}, "--header", "tenant=blue");
    await ok("relay", ...store, ...broker, "--once", "--route", "{header:tenant}.{event_type|lower}");
    expect(JSON.stringify(await rows("broker.db", "SELECT * FROM waybill_broker_messages"))).toContain("blue.orderplaced");
  });

  test("purges what is published and old enough, and nothing else", async () => {
    await add("1", {});
    await ok("relay", ...store, ...broker, "--once");
    await add("2", {});
    expect(await json("purge", ...store, "--older-than", "1h")).toMatchObject({ events: 0, messages: null });
    expect(await json("purge", ...store, "--older-than", "0s", "--dry-run")).toMatchObject({ events: 1, dryRun: true });
    expect(await statuses()).toHaveLength(2);
    expect(await json("purge", ...store, "--older-than", "0s", ...broker, "--as", "ann")).toMatchObject({ events: 1, messages: 1 });
    expect(await statuses()).toEqual([{ aggregate: "2", status: "PENDING" }]);
    expect(await rows("app.db", "SELECT who, action, events FROM waybill_audit WHERE events > 0")).toEqual([
      { who: "ann", action: "purge", events: 1 },
    ]);
  });
});

describe("dead events", () => {
  let dead = "";
  beforeEach(async () => {
    await ok("migrate", ...store);
    dead = await add("1", { n: 1 });
    await add("1", { n: 2 });
    await add("1", { n: 3 });
    await add("2", { n: 1 }, "--header", "tenant=blue");
    // The route needs a header that only the last one has: no attempt can help the others.
    expect(await json("relay", ...store, ...broker, "--once", "--route", "{header:tenant}.events")).toEqual({
      published: 1,
      failed: 0,
      dead: 1,
      held: 0,
    });
    expect((await statuses()).map(({ status }) => status)).toEqual(["DEAD", "BLOCKED", "BLOCKED", "PUBLISHED"]);
  });

  test("are listed by error, and shown with what waits behind them", async () => {
    const { groups, events } = await json<{ groups: { error: string; events: number }[]; events: { id: string }[] }>(
      "dead",
      "list",
      ...store,
    );
    expect(groups).toMatchObject([{ events: 1, error: expect.stringContaining("ROUTE_FAILED") as string }]);
    expect(events.map(({ id }) => id)).toEqual([dead]);
    expect(await json("dead", "show", dead, ...store)).toMatchObject({ id: dead, state: "DEAD", followers: 2, payload: '{"n":1}' });
    expect(await ok("dead", "list", ...store)).toMatch(/ROUTE_FAILED[\s\S]*DEAD/);
    expect(await ok("status", ...store)).toMatch(/1 aggregate, 2 blocked events/);
  });

  test("are redriven by id at once, each before its followers, and the audit says by whom", async () => {
    expect(await json("dead", "redrive", dead, ...store, "--as", "ann")).toEqual({
      action: "redrive",
      dryRun: false,
      events: 1,
      followers: 2,
      ids: [dead],
    });
    expect(await json("relay", ...store, ...broker, "--once")).toMatchObject({ published: 3, dead: 0 });
    expect((await statuses()).map(({ status }) => status)).toEqual(["PUBLISHED", "PUBLISHED", "PUBLISHED", "PUBLISHED"]);
    expect(await rows("app.db", "SELECT who, action, events FROM waybill_audit")).toEqual([{ who: "ann", action: "redrive", events: 1 }]);
  });

  test("are discarded by id at once, and their followers go", async () => {
    expect(await ok("dead", "discard", dead, ...store)).toBe("1 event given up, 2 blocked followers released in order.\n");
    expect(await json("relay", ...store, ...broker, "--once")).toMatchObject({ published: 2 });
    expect((await statuses()).map(({ status }) => status)).toEqual(["DISCARDED", "PUBLISHED", "PUBLISHED", "PUBLISHED"]);
    const [audit] = await rows("app.db", "SELECT who FROM waybill_audit");
    expect(audit?.["who"]).toMatch(/./);
  });

  test.each([
    ["--all", []],
    ["--aggregate-type", ["Order"]],
    ["--aggregate-id", ["1"]],
    ["--type", ["OrderPlaced"]],
  ])("are only looked at with %s, until --yes", async (name, value) => {
    const args = ["dead", "redrive", ...store, name, ...value];
    expect(await ok(...args)).toBe(`Would redrive 1 event; 2 events are BLOCKED behind.\n${dead}\nNothing was changed. --yes does it.\n`);
    expect(await json(...args, "--yes", "--dry-run")).toMatchObject({ dryRun: true, events: 1 });
    expect((await statuses())[0]).toEqual({ aggregate: "1", status: "DEAD" });
    expect(await rows("app.db", "SELECT * FROM waybill_audit")).toEqual([]);
    expect(await json(...args, "--yes")).toMatchObject({ dryRun: false, events: 1 });
    expect((await statuses())[0]).toEqual({ aggregate: "1", status: "PENDING" });
  });

  test("are chosen by their error, as it is listed", async () => {
    const { dead: groups } = await json<Status>("status", ...store);
    expect(await json("dead", "discard", ...store, "--error", "another")).toMatchObject({ events: 0 });
    expect(await json("dead", "discard", ...store, "--error", groups[0]!.error, "--yes")).toMatchObject({ events: 1, dryRun: false });
  });

  test("named by id can be looked at first", async () => {
    expect(await ok("dead", "discard", dead, ...store, "--dry-run")).toBe(
      `Would discard 1 event; 2 events are BLOCKED behind.\n${dead}\nNothing was changed.\n`,
    );
    expect((await statuses())[0]).toEqual({ aggregate: "1", status: "DEAD" });
  });

  test("release their followers at once where the aggregate type is skipped", async () => {
    await add("9", { n: 1 });
    await add("9", { n: 2 }, "--header", "tenant=blue");
    const summary = await json("relay", ...store, ...broker, "--once", "--route", "{header:tenant}.events", "--skip", "Order,User");
    expect(summary).toMatchObject({ published: 1, dead: 1 });
    expect((await statuses()).slice(4).map(({ status }) => status)).toEqual(["DEAD", "PUBLISHED"]);
  });
});

describe("the rest", () => {
  test("migrate makes topics without a store, and says what is missing when there is nothing to make", async () => {
    expect(await json("migrate", ...broker, "--topics", "order.events")).toEqual({ applied: [], topics: ["order.events"] });
    expect(await ok("migrate", ...broker, "--topics", "order.events")).toBe("The broker has order.events.\n");
    // A broker that needs no place for a consumer takes the command that others need.
    expect(await ok("migrate", ...broker, "--topics", "order.events", "--consumers", "stock")).toBe("The broker has order.events.\n");
    expect(await run("migrate", ...broker)).toMatchObject({ code: 2, stderr: expect.stringContaining("--topics A,B") as string });
    expect(await run("migrate")).toMatchObject({ code: 2, stderr: expect.stringContaining("the store is missing") as string });
  });

  test("migrate says what it did, twice is harmless, and --print touches nothing", async () => {
    expect(await json("migrate", ...store)).toEqual({ applied: [1], topics: [] });
    expect(await json("migrate", ...store)).toEqual({ applied: [], topics: [] });
    expect(await ok("migrate", ...store)).toBe("The tables are up to date.\n");
    const printed = await ok("migrate", "--store", "sqlite:other.db", "--print");
    expect(printed).not.toMatch(/^(BEGIN IMMEDIATE|COMMIT)/m); // a migration tool begins and commits itself
    for (const wrong of [["--grants"], ["--print", "--grants"]])
      expect(await run("migrate", ...store, ...wrong)).toMatchObject({ stdout: "" });
    await expect(run("status", "--store", "sqlite:other.db")).resolves.toMatchObject({ code: 1 });
    const db = (await defaultDriver())(join(folder, "printed.db"));
    db.exec(printed);
    db.close();
    expect(await json("status", "--store", "sqlite:printed.db")).toMatchObject({ schemaVersion: 1 });
  });

  test("settings may stand in a file, and flags win over it", async () => {
    await ok("migrate", ...store);
    writeFileSync(
      join(folder, "waybill.config.json"),
      '{"store":"sqlite:app.db","broker":"embedded:wrong/broker.db","route":"file.events","batch":7}',
    );
    await ok("events", "add", "--aggregate-type", "Order", "--aggregate-id", "1", "--type", "T", "--payload", "1");
    expect(await run("relay", "--once")).toMatchObject({ code: 1 });
    expect(await json("relay", "--once", ...broker)).toMatchObject({ published: 1 });
    expect(JSON.stringify(await rows("broker.db", "SELECT * FROM waybill_broker_messages"))).toContain("file.events");
  });

  test("every command has help with an example, and needs nothing else for it", async () => {
    const all = await ok("--help");
    const names = [...all.matchAll(/^ {2}((?:events|dead) \w+|\w+) {2,}/gm)].map(([, name]) => name!);
    expect(names).toEqual([
      "init",
      "dev",
      "migrate",
      "relay",
      "status",
      "events list",
      "events show",
      "events add",
      "dead list",
      "dead show",
      "dead redrive",
      "dead discard",
      "purge",
      "doctor",
      "verify",
    ]);
    for (const name of names) {
      const help = await ok(...name.split(" "), "--help");
      expect(help).toContain(`usage: waybill ${name}`);
      expect(help).toMatch(new RegExp(`examples?:\n {2}waybill ${name}`));
      expect(help).toMatch(/--json .*--help /s);
      expect(await ok("help", ...name.split(" "))).toBe(help);
    }
    expect(await ok("events", "--help")).toMatch(/usage: waybill events list\|show\|add/);
    expect(await ok("help", "dead")).toMatch(/dead redrive/);
    expect(await ok("help")).toBe(all);
    expect(await ok("--version")).toMatch(/^\d+\.\d+\.\d+\n$/);
  });
});
