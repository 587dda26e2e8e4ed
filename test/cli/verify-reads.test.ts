import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { ownWords, tell } from "../../src/cli/verify/answer.ts";
import { consumersOf, deadTopicOf, readerOf, topicsOf } from "../../src/cli/verify/ground.ts";
import { openGround } from "../../src/cli/verify/grounds.ts";
import { canMeasure, measure, samplesOf } from "../../src/cli/verify/measure.ts";
import { freshReader, readBroker, readStore, type Found } from "../../src/cli/verify/reads.ts";
import { leftWords, notesOf, type Report } from "../../src/cli/verify/report.ts";
import { openRunBroker } from "../../src/cli/verify/run-broker.ts";
import { canariesOf, secretsOf } from "../../src/cli/verify/secrets.ts";
import { createWorkers } from "../../src/cli/verify/workers.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { systemClock as clock } from "../../src/core/clock.ts";
import { createOutput } from "../../src/cli/output.ts";
import { defaultDriver } from "../../src/sqlite/driver.ts";
import { resources } from "../../src/verify/resources.ts";
import type { Facts } from "../../src/verify/facts.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-verify-reads-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));
const never = new AbortController().signal;
const placeIn = (where: string) => ({ store: `sqlite:${join(where, "a.db")}`, broker: `embedded:${join(where, "b.db")}`, run: "verify_0" });

describe("reading a topic at the end", () => {
  async function topicWith(count: number) {
    const place = placeIn(folder);
    const [topic] = topicsOf(place) as [string];
    const events = Array.from({ length: count }, () => sampleEvent({ aggregateId: "a-0" }));
    const opened = openRunBroker(place);
    await opened.provision([topic], [readerOf(topic)]);
    await opened.broker.connect(never);
    const publish = (nth: number) => opened.broker.publish([{ topic, source: "/test", envelope: events[nth]! }], never);
    return { ...opened, place, topic, events, publish, ids: new Set(events.map(({ id }) => id)) };
  }

  test("waits for what must be there, however long nothing has come", async () => {
    const { place, topic, events, publish, ids, ...opened } = await topicWith(2);
    await publish(0);
    const reading = freshReader(place, never, { quietMs: 50 })(topic, ids);
    await clock.sleep(600);
    await publish(1);
    expect((await reading).map(({ id }) => id)).toEqual(events.map(({ id }) => id));
    await opened[Symbol.asyncDispose]();
  });

  test("gives up on what is missing after a generous silence, and tells what there is", async () => {
    const { place, topic, events, publish, ids, ...opened } = await topicWith(2);
    await publish(0);
    const read = await freshReader(place, never, { quietMs: 50, lateMs: 300 })(topic, ids);
    expect(read.map(({ id }) => id)).toEqual([events[0]!.id]);
    await opened[Symbol.asyncDispose]();
  });

  test("has not read a topic that takes too long, and nothing of it looks lost", async () => {
    const { place, topic, publish, ids, ...opened } = await topicWith(2);
    await publish(0);
    await expect(freshReader(place, never, { capMs: 300 })(topic, ids)).rejects.toThrow(/could not be read to its end/);
    await opened[Symbol.asyncDispose]();
  });

  test("one topic comes after the other, each with what the store says of it", async () => {
    const topics = topicsOf(placeIn(folder));
    const consumers = consumersOf({ run: "verify_0" });
    const asked: [string, readonly string[]][] = [];
    let atOnce = 0;
    const read = async (topic: string, expected: ReadonlySet<string>): Promise<readonly Found[]> => {
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
  await using ground = await openGround(place);
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
  test("is nothing where the system does not tell, and the report says so", async () => {
    await using workers = createWorkers({ program: "none", folder, clock, proc: join(folder, "none") });
    expect(workers.peaks).toBeNull();
    expect(samplesOf(workers.peaks, 0)).toBeNull();
    expect(samplesOf(workers.peaks, 2), "a death is known everywhere").toMatchObject([{ value: 2, bound: 0 }]);
    expect(resources({ reads: { samples: null } } as unknown as Facts)).toMatchObject({ verdict: "unknown" });
    expect(notesOf({ measured: false, unread: [], deaths: [] } as never)).toEqual([expect.stringContaining("not measured")]);
  });

  test.runIf(canMeasure("/proc"))("is memory and open files where it does", () => {
    const peaks = { rss: 0, files: 0 };
    measure(peaks, "/proc", process.pid);
    expect(peaks.rss).toBeGreaterThan(1);
    expect(peaks.files).toBeGreaterThan(2);
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

  test("that are shown anyway, as the name of something, are not looked for", () => {
    expect(canariesOf(["postgres://postgres:postgres@db/app", "redis://:swordfish@h"], "no secrets")).toEqual({
      looked: ["swordfish"],
      common: 1,
    });
  });
});

describe("what verify says", () => {
  const left = { run: "verify_0", kept: false, histories: "/tmp/h", notRemoved: ["the schema is locked"] };
  const report: Report = {
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
