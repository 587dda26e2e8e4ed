import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import type { Letter } from "../../src/core/letter.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { sqlite, type SqliteStore } from "../../src/stores/sqlite/index.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { until } from "./build.ts";
import { inProcess } from "./in-process.ts";

const topic = "order.events";
let cwd = "";
let store: SqliteStore;
const run = (...args: readonly string[]) => inProcess([...args, "--store", `sqlite:${join(cwd, "app.db")}`], { cwd });
const answer = async <T>(...args: readonly string[]): Promise<T> => {
  const { code, stdout, stderr } = await run(...args, "--json");
  expect(code, stderr).toBe(0);
  return JSON.parse(stdout) as T;
};

const letterOf = (id: string, change: Partial<Letter> = {}): Letter => ({
  envelope: sampleEvent({
    id,
    aggregateId: id.slice(0, 1),
    type: "OrderPlaced",
    headers: { tenant: "north" },
    data: Buffer.from(`{"id":"${id}"}`),
  }),
  ...{ topic, consumer: "shipping", code: "NO_ACCOUNT", error: "no account for …", detail: `no account for ${id}`, attempts: 5 },
  ...change,
});

beforeEach(async () => {
  cwd = mkdtempSync(join(tmpdir(), "waybill-letters-"));
  store = sqlite({ path: join(cwd, "app.db") });
  await store.schema.migrate();
});
afterEach(async () => {
  await store[Symbol.asyncDispose]();
  rmSync(cwd, { recursive: true, force: true });
});

interface Listed {
  readonly groups: readonly { readonly error: string; readonly letters: number; readonly redriven: number }[];
  readonly letters: readonly { readonly id: string; readonly seq: string }[];
}

describe("a consumer's letters", () => {
  beforeEach(async () => {
    for (const id of ["a1", "b1", "a2", "b2"]) await store.inbox.park(letterOf(id));
    await store.inbox.park(letterOf("c1", { code: "", error: "the carrier is closed", detail: "" }));
    await store.inbox.park(letterOf("a1", { consumer: "mail" }));
    await store.inbox.park(letterOf("odd", { raw: Buffer.from("junk"), code: "MESSAGE_UNREADABLE", error: "it has no id" }));
  });

  test("are listed by cause, with an example, and the newest after that", async () => {
    const { groups, letters } = await answer<Listed>("dead", "list", "--consumer", "shipping", "--topic", topic);
    expect(groups).toMatchObject([
      { error: "NO_ACCOUNT: no account for …", letters: 4, redriven: 0 },
      { error: "MESSAGE_UNREADABLE: it has no id", letters: 1 },
      { error: "the carrier is closed", letters: 1 },
    ]);
    expect(letters.map(({ id }) => id)).toEqual(["odd", "c1", "b2", "a2", "b1", "a1"]);
    const page = await run("dead", "list", "--consumer", "shipping");
    expect(page.stdout).toMatch(/letters +redriven +oldest +topic +error +example\n +4 +0 .*order\.events +NO_ACCOUNT: no account for …/);
    expect((await answer<Listed>("dead", "list", "--consumer", "shipping", "--error", "NO_ACC")).letters).toHaveLength(4);
    expect((await run("dead", "list", "--consumer", "nobody")).stdout).toBe(
      "No letters.\nThis database has no trace of nobody: is the name right, and is this the database of its inbox?\n",
    );
  });

  test("are part of the status, and fail its check until they are redriven", async () => {
    const { stdout } = await run("status");
    expect(stdout).toMatch(/shipping has 6 letters, the oldest for .*: NO_ACCOUNT: no account for …, and 2 other causes/);
    expect(stdout).toMatch(/letters +redriven +oldest +consumer +topic +error/);
    const check = await run("status", "--check");
    expect([check.code, check.stderr]).toEqual([1, expect.stringContaining("mail has 1 letter")]);
    for (const consumer of ["shipping", "mail"]) await store.letters.discard({ consumer }, { who: "ann", dryRun: false });
    expect((await run("status", "--check")).code).toBe(0);
  });

  test("do not exist while an event is tried again, and the list says so", async () => {
    for (const id of ["x1", "x2", "x2"]) await store.inbox.failed({ consumer: "billing", id }, "the carrier is closed");
    await store.inbox.once({ consumer: "calm", id: "y1" }, 1, () => undefined);
    const { stdout } = await run("dead", "list", "--consumer", "billing");
    expect(stdout).toMatch(
      /^No letters\.\n2 events have failed and are tried again by billing, after 2 failed attempts at most, the last \d/,
    );
    expect(stdout).toContain("A letter appears when the last attempt has failed: the fifth by default, about 2.6m after the first.");
    expect(await answer("dead", "list", "--consumer", "billing")).toMatchObject({ groups: [], retrying: { events: 2, attempts: 2 } });
    expect((await run("dead", "list", "--consumer", "calm")).stdout).toBe("No letters.\n");
    await store.inbox.failed({ consumer: "shipping", id: "x1" }, "no");
    expect((await run("dead", "list", "--consumer", "shipping")).stdout).toContain("1 event has failed and is tried again by shipping");
    expect((await run("status")).stdout).toContain("billing tries 2 failed events again, after 2 attempts at most");
  });

  test("are told with all that status knows of a consumer", async () => {
    await store.inbox.once({ consumer: "shipping", id: "y1" }, 1, () => undefined);
    await store.inbox.failed({ consumer: "shipping", id: "x1" }, "no");
    const { stdout } = await run("status", "--consumer", "shipping");
    expect(stdout).toContain("shipping has 6 letters, and marks of 1 event that it has applied.");
    expect(stdout).toContain("1 event has failed and is tried again by shipping");
    const { consumers } = await answer<{ consumers: readonly unknown[] }>("status", "--consumer", "shipping");
    expect(consumers).toMatchObject([
      { consumer: "shipping", letters: [{ topic, letters: 6, redriven: 0 }], retrying: { events: 1 }, handled: 1 },
      { consumer: "mail", letters: [{ letters: 1 }], handled: null },
    ]);
    expect((await run("status", "--consumer", "shiping")).stdout).toContain("This database has no trace of shiping");
  });

  test("are counted beyond the causes that are listed", async () => {
    for (let n = 1; n <= 120; n++) await store.inbox.park(letterOf(`z${n}`, { consumer: "mail", error: `cause ${"x".repeat(n)}` }));
    expect((await run("status")).stdout).toContain("mail has 121 letters");
  });

  test("with a huge error are shown by its beginning, and whole in JSON", async () => {
    const long = "the carrier is closed. ".repeat(20_000);
    await store.inbox.park(letterOf("h1", { error: long, detail: long, code: "CLOSED" }));
    const { stdout } = await run("dead", "show", "h1", "--consumer", "shipping");
    expect(stdout.length).toBeLessThan(20_000);
    expect(stdout).toContain("--json has all of it");
    const { letters } = await answer<{ letters: readonly { error: string }[] }>("dead", "show", "h1", "--consumer", "shipping");
    expect(letters[0]!.error.length).toBeGreaterThan(60_000);
    for (const words of [["dead", "list", "--consumer", "shipping"], ["status"]])
      expect((await run(...words)).stdout.length).toBeLessThan(8_000);
  });

  test("that another program wrote are listed all the same, and can be discarded", async () => {
    const db = (await defaultDriver())(join(cwd, "app.db"));
    db.exec(`INSERT INTO waybill_letters
      (consumer, topic, id, digest, aggregate_type, aggregate_id, event_type, envelope, data, error_code, error, attempts, handler_version, parked_at)
      VALUES ('sql', 't', 'i2', 'd', 'O', '1', 'X', 'no json', x'00', '', 'oops', 'many', 'new', 'never')`);
    db.close();
    const { letters } = await answer<{ letters: readonly unknown[] }>("dead", "list", "--consumer", "sql");
    expect(letters).toMatchObject([{ id: "i2", attempts: 0, handlerVersion: 0 }]);
    expect((await run("dead", "show", "i2", "--consumer", "sql")).stderr).toContain("ROW_UNREADABLE");
    expect((await run("dead", "discard", "i2", "--consumer", "sql")).stdout).toContain("1 letter discarded");
  });

  test("without their table are an error that says what to do, and doctor goes on", async () => {
    const db = (await defaultDriver())(join(cwd, "app.db"));
    db.exec("DROP TABLE waybill_letters");
    db.close();
    for (const words of [
      ["dead", "list", "--consumer", "shipping"],
      ["dead", "discard", "--all", "--consumer", "shipping", "--yes"],
      ["status"],
    ]) {
      const { code, stderr } = await run(...words);
      expect([code, stderr]).toEqual([1, expect.stringMatching(/no such table: waybill_letters.*NOT_MIGRATED/s)]);
    }
    const { code, stdout } = await run("doctor", "--consumer", "shipping");
    expect([code, stdout]).toEqual([1, expect.stringMatching(/objects.*waybill_letters/s)]);
    expect(stdout).toContain("consumer: inbox");
  });

  test("of a consumer with a name that a shell would change are named in quotes", async () => {
    await store.inbox.park(letterOf("q1", { consumer: "$HOME's" }));
    expect((await run("dead", "show", "q1")).stderr).toContain(`add --consumer '$HOME'\\''s'`);
  });

  test("are named when an event is asked for that is not dead", async () => {
    const two = await run("dead", "show", "a1");
    expect([two.code, two.stderr]).toEqual([
      1,
      expect.stringContaining("a1 is no dead event, but mail, shipping have letters of it: add --consumer mail"),
    ]);
    expect((await run("dead", "show", "a2")).stderr).toContain("shipping has a letter of it: add --consumer shipping");
    expect((await run("dead", "show", "zz")).stderr).toContain("NOT_FOUND");
  });

  test("are shown with reason, attempts, origin and payload", async () => {
    const { stdout } = await run("dead", "show", "a2", "--consumer", "shipping");
    for (const part of ["NO_ACCOUNT", "no account for a2", "header tenant", "north", '{"id":"a2"}', "handlerVersion", topic])
      expect(stdout).toContain(part);
    expect((await run("dead", "show", "odd", "--consumer", "shipping")).stdout).toContain("no event");
    const none = await run("dead", "show", "zz", "--consumer", "shipping");
    expect([none.code, none.stderr]).toEqual([1, expect.stringContaining("NOT_FOUND")]);
  });

  test("a filter only says what would happen until --yes, and what cannot be applied is told", async () => {
    const dry = await run("dead", "redrive", "--consumer", "shipping", "--all");
    expect(dry.stdout).toContain("Would redrive 5 letters");
    expect(dry.stdout).toContain("1 letter cannot be applied");
    expect(await store.letters.redriven("shipping", topic, 9)).toEqual([]);
    const done = await run("dead", "redrive", "--consumer", "shipping", "--error", "NO_ACCOUNT: no account for …", "--yes", "--as", "ann");
    expect(done.stdout).toContain("4 letters redriven. They go to shipping alone");
    expect((await store.letters.redriven("shipping", topic, 9)).map(({ id }) => id)).toEqual(["a1", "b1", "a2", "b2"]);
    expect(await store.letters.redriven("mail", topic, 9)).toEqual([]);
    const refused = await run("dead", "redrive", "odd", "--consumer", "shipping");
    expect([refused.code, refused.stderr]).toEqual([1, expect.stringContaining("discard the letter")]);
    expect((await run("dead", "discard", "odd", "--consumer", "shipping")).stdout).toContain("1 letter discarded");
  });

  test("that are redriven at a rate tell their progress, and reach this consumer once each, in order", async () => {
    await using broker = embedded({ path: join(cwd, "broker.db") });
    await broker.provision([topic]);
    const effects: string[] = [];
    const of = (consumer: string) =>
      createSubscriber({
        ...{ consumer, source: broker, inbox: store, topics: [topic], observe: false },
        handlers: { OrderPlaced: (event) => void effects.push(`${consumer} ${event.id}`) },
      });
    const subscribers = [of("shipping"), of("mail")];
    for (const subscriber of subscribers) await subscriber.start();
    const { stdout } = await run("dead", "redrive", "--consumer", "shipping", "--error", "NO_ACCOUNT", "--rate", "2", "--yes");
    expect(stdout).toMatch(/^2 of 4 redriven, \d wait for their subscriber\n4 letters redriven/);
    await until(async () => (await store.letters.list({ consumer: "shipping", limit: 9 })).length === 2);
    for (const subscriber of subscribers) await subscriber.drain();
    expect([...effects].sort()).toEqual(["shipping a1", "shipping a2", "shipping b1", "shipping b2"]);
    for (const key of ["a", "b"])
      expect(effects.filter((effect) => effect.includes(` ${key}`))).toEqual([`shipping ${key}1`, `shipping ${key}2`]);
    expect(await store.inbox.once({ consumer: "shipping", id: "a1" }, 1, () => expect.unreachable())).toBe("seen");
  });

  test("that two operators redrive at once, at a rate, reach their consumer once each, and each operator hears of their own", async () => {
    await using broker = embedded({ path: join(cwd, "broker.db") });
    await broker.provision([topic]);
    const effects: string[] = [];
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", source: broker, inbox: store, topics: [topic], observe: false },
      handlers: { OrderPlaced: (event) => void effects.push(event.id) },
    });
    await subscriber.start();
    const command = ["dead", "redrive", "--consumer", "shipping", "--error", "NO_ACCOUNT", "--rate", "1", "--yes", "--json"];
    const answers = await Promise.all([run(...command, "--as", "ann"), run(...command, "--as", "bob")]);
    const redriven = answers.map(({ stdout }) => (JSON.parse(stdout) as { letters: number }).letters);
    expect(redriven[0]! + redriven[1]!).toBe(4);
    await until(async () => (await store.letters.groups({ consumer: "shipping", error: "NO_ACCOUNT" })).length === 0);
    await subscriber.drain();
    expect([...effects].sort()).toEqual(["a1", "a2", "b1", "b2"]);
  });

  test("status tells how far a consumer is behind", async () => {
    await using broker = embedded({ path: join(cwd, "broker.db") });
    await broker.provision([topic]);
    const at = ["--topic", topic, "--broker", `embedded:${join(cwd, "broker.db")}`];
    expect(await answer("status", "--consumer", "shipping", ...at)).toMatchObject({ lag: { consumer: "shipping", topic, messages: null } });
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", source: broker, inbox: store, topics: [topic], observe: false },
      handlers: { OrderPlaced: () => undefined },
    });
    await subscriber.start();
    await until(async () => (await run("status", "--consumer", "shipping", ...at)).stdout.includes("shipping is 0 messages behind"));
    await subscriber.drain();
    await broker.publish([{ topic, source: "/test", envelope: sampleEvent({ id: "n1" }) }], new AbortController().signal);
    expect((await run("status", "--consumer", "shipping", ...at)).stdout).toContain(`shipping is 1 message behind on ${topic}`);
    expect((await run("status", ...at)).code).toBe(2);
  });

  test.each([
    [["dead", "list", "--topic", topic], "--consumer"],
    [["dead", "list", "--consumer", "shipping", "--broker", "embedded:./broker.db"], "--topic"],
    [["dead", "redrive", "--all", "--rate", "5"], "--consumer"],
    [["dead", "discard", "--all", "--consumer", "shipping", "--rate", "5"], "--rate is for a redrive"],
    [["dead", "redrive", "--consumer", "shipping"], "needs ids, a filter, or --all"],
  ])("%j is refused with the way out", async (words, way) => {
    const { code, stderr } = await run(...words);
    expect([code, stderr]).toEqual([2, expect.stringContaining(way)]);
  });

  test("a broker may be named, which is asked for the topic first", async () => {
    const at = ["--consumer", "shipping", "--broker", `embedded:${join(cwd, "broker.db")}`, "--topic", topic];
    expect((await run("dead", "list", ...at)).code).toBe(1);
    await using broker = embedded({ path: join(cwd, "broker.db") });
    await broker.provision([topic]);
    expect((await run("dead", "list", ...at)).code).toBe(0);
  });
});
