import { existsSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import type { OwnedFinding } from "../../src/doctor/examine.ts";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { inProcess } from "../cli/in-process.ts";
import type { Result } from "../cli/build.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;
let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-doctor-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const waybill = (...args: string[]): Promise<Result> => inProcess(args, { cwd: folder });
const both = ["--store", "sqlite:app.db", "--broker", "embedded:broker.db"];

interface Answer {
  readonly store: string | null;
  readonly broker: string | null;
  readonly topics: readonly string[];
  readonly bad: number;
  readonly findings: readonly OwnedFinding[];
}
const answerOf = ({ stdout }: Result): Answer => JSON.parse(stdout) as Answer;
/** A machine whose temporary folder is in memory is right to be told so. */
const isBad = (answer: Answer): readonly string[] => badOf(answer.findings.filter(({ setting }) => setting !== "file system"));

/** Relative paths are the process's, and not those of a folder that a test runs a command in. */
async function migrated(): Promise<string[]> {
  const urls = ["--store", `sqlite:${join(folder, "app.db")}`, "--broker", `embedded:${join(folder, "broker.db")}`];
  expect((await waybill("migrate", ...urls)).code).toBe(0);
  await using broker = embedded({ path: join(folder, "broker.db") });
  await broker.provision(["order.events"]);
  return urls;
}

async function sql(text: string, file = "app.db"): Promise<void> {
  const db = (await defaultDriver())(join(folder, file));
  db.exec(text);
  db.close();
}

describe("waybill doctor", () => {
  test("tells what it knows of the store when the broker cannot be reached, and ends with 1", async () => {
    const [, store] = await migrated();
    const result = await waybill("doctor", "--store", store!, "--broker", "redis://127.0.0.1:1", "--json");
    expect(result).toMatchObject({ code: 1, stderr: expect.stringContaining("ECONNREFUSED") as string });
    const { findings } = answerOf(result);
    expect(findings).toContainEqual(expect.objectContaining({ of: "store", setting: "schema version", verdict: "good" }));
    expect(findings).toContainEqual(expect.objectContaining({ of: "broker", setting: "connection", verdict: "unknown" }));
  });

  test("looks at a consumer: lag, letters, retries and its dead-letter topic", async () => {
    const urls = [...(await migrated()), "--topics", "order.events", "--consumer", "shipping", "--dead-topic", "{topic}.dead"];
    const found = async (): Promise<ReadonlyMap<string, OwnedFinding>> => {
      return new Map(
        answerOf(await waybill("doctor", ...urls, "--json")).findings.flatMap((finding) =>
          finding.of === "consumer" ? [[finding.setting, finding]] : [],
        ),
      );
    };
    const before = await found();
    expect(before.get("consumer")).toMatchObject({ verdict: "unknown", value: "shipping" });
    expect(before.get("lag of order.events")).toMatchObject({ verdict: "unknown" });
    expect(before.get("letters")).toMatchObject({ verdict: "good" });
    expect(before.get("dead-letter topic of order.events")).toMatchObject({ verdict: "good", value: "order.events.dead" });

    await using store = sqlite({ path: join(folder, "app.db") });
    await using broker = embedded({ path: join(folder, "broker.db") });
    const envelope = sampleEvent({ id: "e1" });
    await store.inbox.park({ envelope, topic: "order.events", consumer: "shipping", error: "no such street", attempts: 5 });
    await store.inbox.failed({ consumer: "shipping", id: "e2" }, "no");
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", source: broker, inbox: store, topics: ["order.events"], observe: false },
      handlers: { "*": () => undefined },
    });
    await subscriber.start();
    await expect.poll(async () => (await subscriber.look())[0]?.lag).toBe(0);
    await subscriber.drain();
    await broker.publish([{ topic: "order.events", source: "/test", envelope: sampleEvent({ id: "e3" }) }], never);
    const after = await found();
    expect(after.get("lag of order.events")).toMatchObject({ verdict: "good", value: "1 message" });
    expect(after.get("consumer")).toMatchObject({ verdict: "good" });
    expect(after.get("letters")).toMatchObject({
      verdict: "unknown",
      value: expect.stringMatching(/^1 letter, the oldest for /) as string,
    });
    expect(after.get("retries")).toMatchObject({ verdict: "good", value: expect.stringMatching(/^1 event, /) as string });
    expect((await waybill("doctor", ...urls.slice(0, 2), "--dead-topic", "x")).code).toBe(2);
    const wrong = await waybill("doctor", ...urls.slice(0, 6), "--consumer", "shipping", "--dead-topic", "{tpic}.dead");
    expect([wrong.code, wrong.stderr]).toEqual([2, expect.stringContaining("{tpic}")]);
  });

  test("finds nothing bad of a healthy store and broker, and ends with 0", async () => {
    const urls = await migrated();
    const result = await waybill("doctor", ...urls, "--topics", "order.events", "--json");
    const answer = answerOf(result);
    expect(isBad(answer)).toEqual([]);
    expect(result.code).toBe(answer.bad === 0 ? 0 : 1);
    expect(answer).toMatchObject({ store: "sqlite", broker: "embedded", topics: ["order.events"] });
    expect(new Set(answer.findings.map(({ of }) => of))).toEqual(new Set(["store", "broker", "path"]));
  });

  test("names what is bad first, the promise it breaks and the way out, and ends with 1", async () => {
    const urls = await migrated();
    await sql("DROP INDEX outbox_blocked; DROP TRIGGER outbox_key; DELETE FROM waybill_lanes WHERE lane = 7");
    await sql("DROP INDEX waybill_broker_messages_by_topic", "broker.db");
    const { code, stdout, stderr } = await waybill("doctor", ...urls);
    expect(code).toBe(1);
    expect(stdout).toMatch(/^\d bad settings, \d+ unknown, \d+ good\.\n\nbad\n/);
    expect(stdout).toContain(
      "store: objects = missing: index outbox_blocked, trigger outbox_key, breaks D (few duplicates) and I (isolation)\n",
    );
    expect(stdout).toContain("store: lanes = 63, breaks L (no loss)\n    Events of a lane without a row");
    expect(stdout).toContain("broker: objects = missing: index waybill_broker_messages_by_topic, breaks I (isolation)\n");
    expect(stdout.indexOf("\nbad\n")).toBeLessThan(stdout.indexOf("\nunknown\n"));
    expect(stdout.indexOf("\nunknown\n")).toBeLessThan(stdout.search(/\ngood +setting +value\n/));
    expect(stderr).toMatch(/settings break a promise: .*store objects \(DI\), store lanes \(L\).*\[UNSAFE_SETTING\]/s);
  });

  test("looks at the topics that the newest events go to", async () => {
    const urls = await migrated();
    const add = (type: string): Promise<Result> =>
      waybill("events", "add", ...urls.slice(0, 2), "--aggregate-type", type, "--aggregate-id", "1", "--type", "T", "--payload", "{}");
    await add("Order");
    await add("User");
    expect(answerOf(await waybill("doctor", ...urls, "--json")).topics).toEqual(["order.events", "user.events"]);
    expect(answerOf(await waybill("doctor", ...urls, "--route", "all.{aggregate_type}", "--json")).topics).toEqual([
      "all.Order",
      "all.User",
    ]);
    writeFileSync(join(folder, "waybill.config.json"), JSON.stringify({ topics: ["from.file"] }));
    expect(answerOf(await waybill("doctor", ...urls, "--json")).topics).toEqual(["from.file"]);
  });

  test("takes a store or a broker alone", async () => {
    const urls = await migrated();
    const store = answerOf(await waybill("doctor", ...urls.slice(0, 2), "--json"));
    expect(new Set(store.findings.map(({ of }) => of))).toEqual(new Set(["store"]));
    const broker = answerOf(await waybill("doctor", ...urls.slice(2), "--json"));
    expect(broker).toMatchObject({ store: null, broker: "embedded", topics: [] });
    expect(broker.findings.find(({ setting }) => setting === "topics")).toMatchObject({ of: "path", verdict: "unknown" });
  });

  test("tells of a file without tables, and makes none", async () => {
    await sql("CREATE TABLE mine (a)");
    await sql("CREATE TABLE mine (a)", "broker.db");
    const [store, broker] = [join(folder, "app.db"), join(folder, "broker.db")];
    const sizes = [store, broker].map((path) => statSync(path).size);
    const result = await waybill("doctor", "--store", `sqlite:${store}`, "--broker", `embedded:${broker}`, "--json");
    expect(isBad(answerOf(result))).toEqual(["schema version L"]);
    expect([store, broker].map((path) => statSync(path).size)).toEqual(sizes);
  });

  test.each([
    [[], /needs --store URL, --broker URL or both/],
    [["--store", "sqlite:app.db", "--topics", "a"], /--topics needs --broker/],
    [["--store", "sqlite:app.db", "--route", "a"], /--route needs --broker/],
    [["--store", "sqlite:app.db", "--management", "http://h"], /--management needs --broker/],
    [[...both, "--management", "http://u:s3cret@h"], /--management is for amqp: and amqps: alone: leave it out for embedded:/],
    [["--broker", "embedded:broker.db", "--route", "{nothing}"], /has \{nothing\}/],
    [["--store", "nats://h"], /is the URL of a broker/],
  ])("%j is wrong use, and ends with 2", async (args, message) => {
    const { code, stdout, stderr } = await waybill("doctor", ...args);
    expect({ code, stdout }).toEqual({ code: 2, stdout: "" });
    expect(stderr).toMatch(message);
    expect(stderr).not.toContain("s3cret");
  });

  test("ends with 1 where there is no file, and makes none", async () => {
    for (const [flag, scheme] of [
      ["--store", "sqlite"],
      ["--broker", "embedded"],
    ] as const) {
      const path = join(folder, "none.db");
      const { code, stderr } = await waybill("doctor", flag, `${scheme}:${path}`);
      expect(code).toBe(1);
      expect(stderr).toMatch(/there is no file/);
      expect(existsSync(path)).toBe(false);
    }
  });

  test.each([
    ["--store", "postgres://ann:s3cret@127.0.0.1:1/app?sslmode=disable"],
    ["--store", "mysql://ann:s3cret@127.0.0.1:1/app"],
    ["--broker", "redis://ann:s3cret@127.0.0.1:1/0"],
    ["--broker", "nats://ann:s3cret@127.0.0.1:1"],
  ])("%s %s that cannot be reached ends with 1 and tells no secret", async (flag, url) => {
    for (const json of [[], ["--json"]]) {
      const { code, stdout, stderr } = await waybill("doctor", flag, url, ...json);
      expect({ code, stdout }).toEqual({ code: 1, stdout: "" });
      expect(stderr).toContain("127.0.0.1:1");
      expect(stderr).not.toContain("s3cret");
    }
  });
});

describe("a SQLite file", () => {
  test.skipIf(!existsSync("/dev/shm"))("in memory is bad", async () => {
    const there = mkdtempSync("/dev/shm/waybill-doctor-");
    try {
      await using store = sqlite({ path: join(there, "app.db") });
      await store.schema.migrate();
      expect(badOf(await store.examine!([], never))).toEqual(["file system L"]);
    } finally {
      rmSync(there, { recursive: true, force: true });
    }
  });

  test("that was switched to WAL behind our back is bad where the library must not use it", async () => {
    const path = join(folder, "app.db");
    await using store = sqlite({ path });
    await store.schema.migrate();
    const before = await store.examine!([], never);
    const handle = (await defaultDriver())(path);
    handle.exec("PRAGMA journal_mode = WAL");
    const after = await store.examine!([], never);
    handle.close();
    const [version] = /[\d.]+/.exec(before.find(({ setting }) => setting === "journal_mode")!.value!)!;
    const mended = before.some(({ value }) => value?.startsWith("wal"));
    expect(badOf(before).filter((bad) => bad.startsWith("journal"))).toEqual([]);
    expect([version, badOf(after).filter((bad) => bad.startsWith("journal"))]).toEqual([version, mended ? [] : ["journal_mode L"]]);
  });
});
