import { existsSync, mkdirSync, mkdtempSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { afterEach, beforeAll, beforeEach, describe, expect, test } from "vitest";
import { readConfig } from "../../src/cli/config.ts";
import { built, cli, start, until, type Result } from "./build.ts";

/** A broker that only its user knows: an instance of a class, with a line in a file for each message. */
const journal = `
import { appendFileSync, existsSync, readFileSync } from "node:fs";
const lines = (path) => (existsSync(path) ? readFileSync(path, "utf8").split("\\n").filter((line) => line !== "") : []);
export class Journal {
  name = "journal";
  get can() { return { maxBytes: 1024 * 1024 }; }
  async connect() {}
  async probe(topic) { if (!lines("topics").includes(topic)) throw new Error("there is no topic " + topic); }
  async publish(batch) {
    for (const { topic, envelope } of batch) appendFileSync("journal", JSON.stringify([topic, envelope.id]) + "\\n");
    return batch.map(() => ({ status: "stored" }));
  }
  async provision(topics, consumers) { for (const name of [...topics, ...consumers]) appendFileSync("topics", name + "\\n"); }
  async [Symbol.asyncDispose]() { appendFileSync("closed", "closed\\n"); }
}`;

let folder = "";
beforeAll(() => built());
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-own-"));
  mkdirSync(join(folder, "node_modules"));
  symlinkSync(fileURLToPath(new URL("../../", import.meta.url)), join(folder, "node_modules/waybill"));
  writeFileSync(join(folder, "journal.mjs"), journal);
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const configure = (text: string): void =>
  writeFileSync(join(folder, "waybill.config.mjs"), `import { Journal } from "./journal.mjs";\n${text}`);
const run = (...args: string[]): Promise<Result> => cli(args, { cwd: folder });
async function answer(...args: string[]): Promise<Record<string, unknown>> {
  const { code, stdout, stderr } = await run(...args, "--json");
  expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
  return JSON.parse(stdout) as Record<string, unknown>;
}
/** Doctor ends with 1 where the folder of the test is in memory. */
const examined = async (): Promise<{ store: string; broker: string; topics: string[]; findings: Record<string, unknown>[] }> =>
  JSON.parse((await run("doctor", "--json")).stdout) as Awaited<ReturnType<typeof examined>>;
async function refused(code: string, ...args: string[]): Promise<string> {
  const { code: exit, stderr } = await run(...args);
  expect({ exit, stderr }).toMatchObject({ exit: 2, stderr: expect.stringContaining(`[${code}]`) as string });
  expect(stderr).not.toMatch(/^ {4}at /m);
  return stderr;
}
const read = (name: string): string => readFileSync(join(folder, name), "utf8");
const event = ["--aggregate-type", "Order", "--aggregate-id", "1", "--type", "OrderPlaced", "--payload", "{}"];

describe("a broker of the user's own in the configuration file", () => {
  test("has migrate, relay, metrics, status, events, dead, doctor and purge", async () => {
    configure('export default { store: "sqlite:app.db", broker: new Journal(), topics: ["order.events"] };');
    expect(await answer("migrate", "--consumers", "shipping")).toMatchObject({ topics: ["order.events"] });
    expect(read("topics")).toBe("order.events\nshipping\n");
    const { id } = await answer("events", "add", ...event);
    expect(await answer("relay", "--once")).toEqual({ published: 1, failed: 0, dead: 0, held: 0 });
    expect(read("journal")).toBe(`["order.events","${String(id)}"]\n`);
    expect(await answer("status")).toMatchObject({ states: { PUBLISHED: 1 } });
    expect(await answer("events", "show", String(id))).toMatchObject({ state: "PUBLISHED", topic: "order.events" });
    expect(await answer("dead", "list")).toMatchObject({ events: [] });
    const told = await examined();
    expect(told).toMatchObject({ broker: "journal", topics: ["order.events"] });
    expect(told.findings.filter(({ of }) => of === "broker").map(({ setting, verdict }) => [setting, verdict])).toEqual([
      ["settings", "unknown"],
      ["topic order.events", "good"],
    ]);
    expect(await answer("purge", "--older-than", "0s")).toMatchObject({ events: 1, messages: null });
    expect(read("closed")).toBe("closed\n".repeat(3)); // by migrate, relay and doctor, which opened it

    const { child, result, stdout } = await start(["relay", "--json", "--http", "127.0.0.1:0", "--poll-interval", "20ms"], { cwd: folder });
    try {
      await until(() => stdout().includes("relay.started"));
      const { http } = JSON.parse(
        stdout()
          .split("\n")
          .find((line) => line.includes("relay.started"))!,
      ) as { http: string };
      await answer("events", "add", ...event);
      await until(async () => /^waybill_published_total(\{[^}]*\})? 1$/m.test(await (await fetch(`${http}/metrics`)).text()));
    } finally {
      child.kill("SIGTERM");
    }
    expect(await result).toMatchObject({ code: 0, stderr: "" });
    expect(read("journal").split("\n")).toHaveLength(3);
  });

  test("may be made by a function, which is called by the commands that need it", async () => {
    configure(`export default { store: "sqlite:app.db", broker: async () => { console.error("made"); return new Journal(); } };`);
    expect(await run("migrate", "--topics", "order.events")).toMatchObject({ code: 0, stderr: "made\n" });
    expect(await run("status")).toMatchObject({ code: 0, stderr: "" });
    expect(await run("relay", "--once")).toMatchObject({ code: 0, stderr: "made\n" });
  });

  test("yields to a flag and to the environment", async () => {
    configure('export default { store: "sqlite:app.db", broker: new Journal() };');
    await answer("migrate", "--broker", "embedded:b.db", "--topics", "order.events");
    expect(existsSync(join(folder, "topics"))).toBe(false);
    expect(existsSync(join(folder, "b.db"))).toBe(true);
    const env = { WAYBILL_BROKER: "embedded:c.db" };
    expect(await cli(["migrate", "--topics", "order.events"], { cwd: folder, env })).toMatchObject({ code: 0 });
    expect(existsSync(join(folder, "c.db"))).toBe(true);
  });

  test("is refused with what it lacks, and where it cannot be used", async () => {
    configure('export default { store: "sqlite:app.db", broker: { name: "half", url: "amqp://ann:s3cret@host" } };');
    const half = await refused("CONFIG_INVALID", "relay");
    expect(half).toContain("broker must be a URL, a Sink or a function that makes one: this object lacks can, connect, publish, probe");
    expect(half).not.toContain("s3cret");
    configure('export default { store: "sqlite:app.db", broker: () => null };');
    await answer("migrate", "--no-config", "--store", "sqlite:app.db");
    expect(await refused("CONFIG_INVALID", "relay", "--once")).toContain("must make a Sink, and what it made lacks name, can");
    configure('export default { store: "sqlite:app.db", broker: () => { throw new Error("no licence"); } };');
    expect(await refused("CONFIG_INVALID", "relay", "--once")).toContain("the function of the configuration file failed: no licence");
    configure('export default { store: "sqlite:app.db", broker: new Journal() };');
    expect(await refused("USAGE", "verify")).toContain("waybill verify starts processes of its own: give it the broker's URL");
    expect(await refused("USAGE", "doctor", "--management", "http://h")).toContain("--management is for a broker's URL");
    configure('const one = new Journal(); one.provision = undefined; export default { store: "sqlite:app.db", broker: one };');
    expect(await refused("UNSUPPORTED", "migrate", "--topics", "a")).toContain("journal of the configuration file has no provision");
    const topicless = await run("doctor", "--topics", "order.events");
    expect(topicless).toMatchObject({ code: 1, stdout: expect.stringContaining("there is no topic order.events") as string });
  });
});

describe("a store of the user's own in the configuration file", () => {
  const own = (more: string): void =>
    configure(`import Database from "${fileURLToPath(new URL("../../node_modules/libsql/index.js", import.meta.url))}";
import { sqlite } from "waybill/sqlite";
const open = (path) => new Database(path);
setInterval(() => undefined, 1000); // a pool of the user's that is never closed
export default { broker: new Journal(), ${more} };`);

  test("has every command that works on a store, and none waits for what the file left open", async () => {
    own('store: () => sqlite({ path: "app.db", open }), db: open("app.db")');
    expect(await answer("migrate", "--topics", "order.events")).toMatchObject({ topics: ["order.events"] });
    const { id } = await answer("events", "add", ...event);
    expect(await answer("events", "list")).toMatchObject({ events: [{ id, state: "PENDING" }] });
    expect(await answer("relay", "--once")).toMatchObject({ published: 1 });
    expect(await answer("status")).toMatchObject({ states: { PUBLISHED: 1 } });
    expect(await examined()).toMatchObject({ store: "sqlite", broker: "journal" });
    expect(await answer("purge", "--older-than", "0s")).toMatchObject({ events: 1 });
  });

  test("needs db for events add, and takes its own options itself", async () => {
    own('store: sqlite({ path: "app.db", open })');
    await answer("migrate");
    expect(await refused("USAGE", "events", "add", ...event)).toContain("needs db in the configuration file");
    own('store: sqlite({ path: "app.db", open }), schema: "events"');
    expect(await refused("CONFIG_INVALID", "status")).toContain("schema goes with a store's URL");
  });

  test("is refused with what it lacks", () => {
    expect(() => readConfig({ store: { url: "postgres://ann:s3cret@db" } }, "x.mjs")).toThrow(
      "x.mjs: store must be a URL, a Store or a function that makes one: this object lacks name, schema, writer, transactor, outbox, leases, inbox, letters, consumers, operator, wake, [Symbol.asyncDispose]",
    );
    expect(() => readConfig({ store: 7 }, "x.mjs")).toThrow("x.mjs: store must be a URL, a Store or a function that makes one");
  });
});
