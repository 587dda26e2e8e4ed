import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { placeOf } from "../../src/brokers/redis/url.ts";
import { ownWords, tell } from "../../src/cli/verify/answer.ts";
import { consumersOf, deadTopicOf, openGround, readerOf, topicsOf } from "../../src/proof/run/ground.ts";
import { openRunBroker, patient } from "../../src/proof/run/access.ts";
import { most, samplesOf, usesOf } from "../../src/proof/crew/measure.ts";
import { freshReader, readBroker, readStore, type ReadMessage } from "../../src/proof/run/reads.ts";
import { leftWords, notesOf, type RunReport } from "../../src/cli/verify/report.ts";
import type { RunPlace } from "../../src/proof/run/task.ts";
import { targetOf } from "../../src/proof/run/network.ts";
import { adapterOf } from "../../src/cli/adapters.ts";
import { accessTo } from "../../src/cli/url.ts";
import { canariesOf, ownText, secretsOf } from "../../src/cli/verify/secrets.ts";
import type { Subscription } from "../../src/contracts/source.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { systemClock as clock } from "../../src/core/clock.ts";
import { createOutput } from "../../src/cli/output.ts";
import { settingsOf } from "../../src/stores/mysql/driver.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { resources } from "../../src/proof/judge/resources.ts";
import { noSecrets } from "../../src/proof/judge/secrets.ts";
import type { Facts } from "../../src/proof/judge/facts.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-verify-reads-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));
const never = new AbortController().signal;
const placeIn = (where: string) => ({ store: `sqlite:${join(where, "a.db")}`, broker: `embedded:${join(where, "b.db")}`, run: "verify_0" });

const opening = (place: RunPlace) => () => openRunBroker(accessTo(), place, patient);

describe("reading a topic at the end", () => {
  async function topicWith(count: number) {
    const place = placeIn(folder);
    const [topic] = topicsOf(place) as [string];
    const events = Array.from({ length: count }, () => sampleEvent({ aggregateId: "a-0" }));
    const opened = openRunBroker(accessTo(), place);
    await opened.provision([topic], [readerOf(topic)]);
    await opened.broker.connect(never);
    const publish = (nth: number) => opened.broker.publish([{ topic, source: "/test", envelope: events[nth]! }], never);
    return { ...opened, place, topic, events, publish, ids: new Set(events.map(({ id }) => id)) };
  }

  test("waits for what must be there, however long nothing has come", async () => {
    const { place, topic, events, publish, ids, ...opened } = await topicWith(2);
    await publish(0);
    const reading = freshReader(opening(place), never, { quietMs: 50 })(topic, ids);
    await clock.sleep(600);
    await publish(1);
    expect((await reading).map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    await opened[Symbol.asyncDispose]();
  });

  test("gives up on what is missing after a generous silence, and tells what there is", async () => {
    const { place, topic, events, publish, ids, ...opened } = await topicWith(2);
    await publish(0);
    const read = await freshReader(opening(place), never, { quietMs: 50, lateMs: 300 })(topic, ids);
    expect(read.map(({ id }) => id)).toEqual([events[0]!.id]);
    await opened[Symbol.asyncDispose]();
  });

  test("has not read a topic that takes too long, and nothing of it looks lost", async () => {
    const { place, topic, publish, ids, ...opened } = await topicWith(2);
    await publish(0);
    await expect(freshReader(opening(place), never, { capMs: 300 })(topic, ids)).rejects.toThrow(/could not be read to its end/);
    await opened[Symbol.asyncDispose]();
  });

  test("a lost ack is only one delivery more, and ends nothing", async () => {
    const event = sampleEvent({ aggregateId: "a-0" });
    const lost = async (): Promise<void> => Promise.reject(new Error("the link is lost"));
    const broker = {
      ...openRunBroker(accessTo(), placeIn(folder)).broker,
      connect: async () => undefined,
      async *receive({ topics: [topic] }: Subscription, signal: AbortSignal) {
        yield { topic: topic!, envelope: event, ack: lost, aside: () => undefined };
        await clock.sleep(60_000, signal);
      },
    };
    const unhandled: unknown[] = [];
    const note = (error: unknown): void => void unhandled.push(error);
    process.on("unhandledRejection", note);
    try {
      const open = () => ({ broker, [Symbol.asyncDispose]: async () => undefined });
      const read = await freshReader(open, never, { quietMs: 50 })("t", new Set([event.id]));
      expect(read.map(({ id }) => id)).toEqual([event.id]);
      expect(unhandled).toEqual([]);
    } finally {
      process.off("unhandledRejection", note);
    }
  });

  test("one topic comes after the other, each with what the store says of it", async () => {
    const topics = topicsOf(placeIn(folder));
    const consumers = consumersOf({ run: "verify_0" });
    const asked: [string, readonly string[]][] = [];
    let atOnce = 0;
    const read = async (topic: string, expected: ReadonlySet<string>): Promise<readonly ReadMessage[]> => {
      expect((atOnce += 1)).toBe(1);
      asked.push([topic, [...expected]]);
      await clock.sleep(5);
      atOnce -= 1;
      return [];
    };
    const row = (id: string, side: string, state: "PUBLISHED" | "DEAD") => ({ id, aggregate: `verify_0-${side}/a-1`, state });
    const outbox = [
      row("l1", "left", "PUBLISHED"),
      row("l2", "left", "PUBLISHED"),
      row("l3", "left", "DEAD"),
      row("r1", "right", "PUBLISHED"),
    ];
    const effects = ["l1", "r1"].map((id) => ({ consumer: consumers[0]!, topic: "", id, aggregate: "", n: 1 }));
    await readBroker(read, { topics, consumers, store: { outbox, effects } });
    expect(asked).toEqual([
      [topics[0], ["l1", "l2"]],
      [deadTopicOf(topics[0]!), ["l2"]],
      [topics[1], ["r1"]],
      [deadTopicOf(topics[1]!), []],
    ]);
  });
});

test("everything that a run is called in a broker begins with its name", () => {
  const place = placeIn(folder);
  const names = [...topicsOf(place), ...consumersOf(place), ...topicsOf(place).map(deadTopicOf).map(readerOf)];
  for (const name of names) expect(name).toMatch(/^verify_0-/);
  expect(new Set(names).size).toBe(names.length);
});

test("what SQL counts is counted in the tables, whatever the view says", async () => {
  const place = placeIn(folder);
  await using ground = await openGround(accessTo(), place);
  await ground.prepare(["verify_0-left/a-0"], consumersOf(place));
  await ground.transaction(async ({ add }) => {
    await add([{ aggregateType: "verify_0-left", aggregateId: "a-0", type: "Changed", payload: 1 }]);
  });
  const db = (await defaultDriver())(join(folder, "a-verify_0.db"));
  db.exec("DROP VIEW outbox_events");
  db.exec("CREATE VIEW outbox_events AS SELECT o.*, 'DEAD' AS state FROM outbox o");
  db.close();
  const { status, outbox } = await readStore(ground);
  expect(status?.truth).toMatchObject({ PENDING: 1, DEAD: 0, PUBLISHING: 0 });
  expect(outbox).toMatchObject([{ aggregate: "verify_0-left/a-0", state: "PENDING" }]);
});

describe("what is measured", () => {
  test("is nothing before a worker has told of itself, and that is no good sign", () => {
    expect(samplesOf(null, 0)).toBeNull();
    expect(samplesOf(null, 2), "a death is known everywhere").toMatchObject([{ value: 2, bound: 0 }]);
    expect(resources({ reads: { samples: null } } as unknown as Facts)).toMatchObject({ verdict: "unknown" });
  });

  test("is memory alone where the system does not tell of files, and the report says so", () => {
    const uses = usesOf(join(folder, "none"));
    expect(uses).toEqual({ rss: expect.any(Number) as number, files: null });
    expect(samplesOf(most(null, uses), 0)?.map(({ what }) => what)).toEqual([
      "the memory of a worker in MiB",
      "deaths that nobody asked for",
    ]);
    // The runner of the tests is larger than a worker may be.
    expect(resources({ reads: { samples: samplesOf({ ...uses!, rss: 1 }, 0) } } as unknown as Facts)).toMatchObject({ verdict: "holds" });
    expect(notesOf({ measured: false, unread: [], deaths: [] } as never)).toEqual([expect.stringContaining("not measured")]);
  });

  test("is left out while a worker may open no more files, and does not end it", () => {
    const exhausted = usesOf(folder, () => {
      throw Object.assign(new Error("EMFILE: too many open files, uv_resident_set_memory"), { code: "EMFILE" });
    });
    expect(most({ rss: 3, files: 9 }, exhausted)).toEqual({ rss: 3, files: 9 });
    expect(most(null, exhausted)).toBeNull();
  });

  test("is the most that any worker had of each", () => {
    expect(usesOf(folder)!.rss).toBeGreaterThan(1);
    expect(most({ rss: 3, files: 9 }, { rss: 5, files: 7 })).toEqual({ rss: 5, files: 9 });
    expect(most({ rss: 3, files: 9 }, { rss: 5, files: null })).toEqual({ rss: 5, files: 9 });
    expect(samplesOf({ rss: 500, files: 9 }, 0)).toMatchObject([{ value: 500, bound: 400 }, { value: 9 }, { value: 0 }]);
  });
});

describe("the secrets of a URL", () => {
  test.for([
    ["postgres://me:p%40ss@db/app", ["p%40ss", "p@ss"]],
    ["postgres://me@db/app?password=hidden&sslmode=require&sslkey=/etc/key.pem", ["hidden"]],
    ["mysql://root:abcd@127.0.0.1:3307/test", ["abcd"]],
    ["kafka://me:one:two@a:9092,b:9092?sasl=plain", ["one:two"]],
    ["kafkas://a:9093?ca=/ca.pem&cert=/c.pem&key=/k.pem", []],
    ["nats://s3cr3t-token@a:4222,b:4222", ["s3cr3t-token"]],
    ["nats://someone:password@a:4222", ["password"]],
    ["redis://:swordfish@h:6379/0", ["swordfish"]],
    ["redis://:abc@h:6379/0", []],
    ["sqlite:./app.db", []],
  ] as const)("%s", ([url, secrets]) => expect(secretsOf(url)).toEqual(secrets));

  test.for([
    ["redis://me:pass@word@h:6380/0", placeOf],
    ["mysql://me:pass@word@h:6380/app?sslmode=disable", settingsOf],
  ] as const)("end at the last @ before the path, and there the server begins, as for its adapter: %s", ([url, adapter]) => {
    const place = { host: "h", port: 6380 };
    expect(secretsOf(url)).toEqual(["pass@word"]);
    expect(targetOf(url, adapterOf(url)?.server ?? null)).toEqual(place);
    expect(adapter(url)).toMatchObject({ ...place, password: "pass@word" });
  });

  test("that are shown anyway, as the name of something, are looked for where only a secret stands", () => {
    expect(canariesOf(["postgres://postgres:postgres@db/app", "redis://:swordfish@h"], "no secrets")).toEqual({
      looked: ["swordfish"],
      common: ["postgres"],
    });
  });

  test("that are words of this package are such, as the password of the quick starts is", () => {
    const urls = ["postgres://postgres:waybill@localhost:5432/shop", "amqp://shop:correct-horse-7@localhost"];
    expect(canariesOf(urls, ownText())).toEqual({ looked: ["correct-horse-7"], common: ["waybill"] });
  });

  test("that are words of this package come out of an honest run, which is not broken by them", () => {
    const report: RunReport = {
      ...{ run: "verify_0", seed: 1, minutes: 1, store: "postgres://postgres:***@localhost:5432/shop", broker: "b", startedAt: "now" },
      ...{ held: true, left: null, verdicts: [], counts: { events: 1, published: 1, effects: 1, copies: 0 }, faults: {}, notes: [] },
      timeline: { seconds: 1, faults: [], throughput: { added: [], published: [], applied: [] } },
    };
    const outputs = ownWords(
      ["run verify_0, seed 1", 'waybill: claim went wrong: password authentication failed for user "waybill"'],
      report,
    );
    const judged = (more: string): string =>
      noSecrets({
        reads: { ...{ canaries: ["canary-1"], commonCanaries: ["waybill"] }, outputs: [...outputs, { where: "a log", text: more }] },
        history: [],
      } as unknown as Facts).verdict;
    expect(outputs.some(({ text }) => text.includes("waybill"))).toBe(true);
    expect(judged('waybill_outbox, "waybill", exchange waybill, {"key":"waybill.orders"}, tokens of waybill-js')).toBe("holds");
    for (const leak of [
      "connecting to postgres://postgres:waybill@localhost:5432/shop",
      'at amqp://a:x,shop:waybill@h: {"password":"waybill"}',
      '{"password":"waybill"}',
      '{\\"password\\":\\"waybill\\"}',
      "password: 'waybill', host: 'localhost'",
      "?sslmode=require&password=waybill",
      "PGPASSWORD=waybill",
      "the password is waybill",
    ])
      expect([leak, judged(leak)]).toEqual([leak, "broken"]);
  });
});

describe("what verify says", () => {
  const left = { run: "verify_0", kept: false, histories: "/tmp/h", notRemoved: ["the schema is locked"] };
  const report: RunReport = {
    ...{ run: "verify_0", seed: 1, minutes: 1, store: "s://shown-store", broker: "b", startedAt: "now", held: false, left },
    ...{ verdicts: [], counts: { events: 1, published: 1, effects: 1, copies: 0 }, faults: {}, notes: ["a-note"] },
    timeline: { seconds: 1, faults: [], throughput: { added: [], published: [], applied: [] } },
  };
  const told = (json: boolean): string => {
    let text = "";
    tell(createOutput({ write: (more) => void (text += more), colour: false }, json), report, undefined);
    return text;
  };

  test("is looked through for secrets: lines, notes, page and JSON", () => {
    const words = ownWords(["a-line"], report);
    expect(words.map(({ text }) => ["a-line", "a-note", "shown-store"].filter((one) => text.includes(one)))).toEqual([
      ["a-line"],
      ["a-note"],
      ["a-note", "shown-store"],
      ["a-note", "shown-store"],
    ]);
  });

  test("names what is left of a run, in text, page and JSON", () => {
    expect(JSON.parse(told(true))).toMatchObject({ left });
    const page = ownWords([], report)[2]!.text;
    for (const words of leftWords(left)) for (const text of [told(false), page]) expect(text).toContain(words);
    expect(leftWords(left)).toEqual(["verify_0 could not be removed: the schema is locked", "the histories are in /tmp/h"]);
  });
});
