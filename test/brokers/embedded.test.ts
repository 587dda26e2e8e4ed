import { describe, expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { quiet, sampleEvent, within } from "../../src/conformance/corpus.ts";
import { sinkSuite } from "../../src/conformance/sink.ts";
import { sourceSuite } from "../../src/conformance/source.ts";
import { bytesOf } from "../../src/drivers/sqlite/connection.ts";
import { ids, many, never, outgoing, publish, topic, topics, using } from "./embedded.ts";
import { driver, execute, freshPath, sql, watched } from "./files.ts";

describe("embedded", () => {
  sinkSuite({
    test,
    can: { missing: true },
    async create() {
      const path = freshPath();
      await using({ path }, (broker) => broker.provision(topics));
      return {
        sink: embedded({ path, provision: false }),
        topics,
        missing: "nowhere",
        stored: async (of) =>
          sql(path, `SELECT key, attributes, headers, data FROM waybill_broker_messages WHERE topic = ? ORDER BY offset`, of).map(
            (row) => ({
              key: row["key"] as string,
              attributes: JSON.parse(row["attributes"] as string) as Record<string, string>,
              headers: JSON.parse(row["headers"] as string) as Record<string, string>,
              data: bytesOf(row["data"]),
            }),
          ),
        close: async () => undefined,
      };
    },
  });

  sourceSuite({
    test,
    can: { redeliverWithinMs: 0 },
    async create() {
      const path = freshPath();
      const broker = embedded({ path });
      return {
        topics,
        open: async () => embedded({ path }),
        store: async (to, events) => void (await publish(broker, events, to)),
        close: async () => broker[Symbol.asyncDispose](),
      };
    },
  });

  test("makes its tables on first use, all under its own prefix, beside whatever the file holds", async () => {
    const path = freshPath();
    execute(path, "CREATE TABLE outbox (seq INTEGER PRIMARY KEY)");
    // Five processes that start at once, as far as the file can tell.
    const brokers = Array.from({ length: 5 }, () => embedded({ path }));
    await Promise.all(brokers.map((broker) => broker.connect(never)));
    for (const broker of brokers) await broker[Symbol.asyncDispose]();
    const tables = sql(path, "SELECT name FROM sqlite_master WHERE name NOT LIKE 'sqlite_%' AND name NOT LIKE 'waybill_broker_%'");
    expect(tables).toEqual([{ name: "outbox" }]);
    expect(sql(path, "SELECT version FROM waybill_broker_schema")).toEqual([{ version: 1 }]);
  });

  test("a topic comes into being with its first message, unless `provision` is false", async () => {
    const path = freshPath();
    await using({ path, provision: false }, async (broker) => {
      expect(await publish(broker, [sampleEvent()], "new")).toMatchObject([
        { status: "refused", blame: "destination", error: { code: "DESTINATION_UNAVAILABLE" } },
      ]);
      await expect(broker.probe("new", never)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      expect(sql(path, "SELECT count(*) AS n FROM waybill_broker_topics")).toEqual([{ n: 0 }]);
      await broker.provision(["new", "new"]);
      await broker.provision(["new"]);
      await broker.probe("new", never);
      expect(await publish(broker, [sampleEvent()], "new")).toEqual([{ status: "stored" }]);
      await expect(broker.provision([""])).rejects.toMatchObject({ code: "INVALID_OPTION" });
    });
    await using({ path }, async (broker) => {
      await broker.probe("newer", never);
      expect(await publish(broker, [sampleEvent()], "newer")).toEqual([{ status: "stored" }]);
    });
    expect(sql(path, "SELECT topic FROM waybill_broker_topics ORDER BY topic")).toEqual([{ topic: "new" }, { topic: "newer" }]);
  });

  test("the limit counts attributes and headers too", async () => {
    const path = freshPath();
    const event = sampleEvent({ data: new Uint8Array(900), headers: { tenant: "x".repeat(200) } });
    await using({ path, maxBytes: 1_000 }, async (broker) => {
      expect(broker.can.maxBytes).toBe(1_000);
      expect(await publish(broker, [event])).toMatchObject([
        { status: "refused", blame: "event", retryable: false, error: { code: "MESSAGE_TOO_LARGE" } },
      ]);
    });
    await using({ path, maxBytes: 2_000 }, async (broker) => expect(await publish(broker, [event])).toEqual([{ status: "stored" }]));
  });

  test("a batch is one transaction: a failure within it stores nothing and is the destination's", async () => {
    const path = freshPath();
    let inserts = 0;
    let failing = true;
    const open = watched({
      before(text) {
        if (text.startsWith("INSERT INTO waybill_broker_messages") && ++inserts === 50 && failing) throw new Error("no more");
      },
    });
    await using({ path, open, maxBytes: 10_000 }, async (broker) => {
      const events = [...many(80), sampleEvent({ aggregateId: "big", data: new Uint8Array(10_001) })];
      const results = await publish(broker, events);
      expect(results.slice(0, 7)).toEqual(
        Array(7).fill(expect.objectContaining({ status: "refused", blame: "destination", retryable: true })),
      );
      expect(results.slice(7, 80)).toEqual(Array(73).fill({ status: "skipped" }));
      expect(results[80]).toMatchObject({ status: "refused", blame: "event" });
      expect(ids(path)).toEqual([]);
      failing = false;
      expect(new Set((await publish(broker, events.slice(0, 80))).map(({ status }) => status))).toEqual(new Set(["stored"]));
      expect(ids(path)).toEqual(events.slice(0, 80).map(({ id }) => id));
    });
  });

  test.each([
    ["before it took place", true, 0],
    ["after it took place", false, 3],
  ])("a COMMIT that fails %s is unknown, for every message of it", async (_, early, rows) => {
    const path = freshPath();
    let armed = false;
    const fail = (text: string): void => {
      if (armed && text === "COMMIT") throw Object.assign(new Error("disk I/O error"), { code: "SQLITE_IOERR" });
    };
    await using({ path, open: watched(early ? { before: fail } : { after: fail }) }, async (broker) => {
      await broker.connect(never);
      armed = true;
      const results = await publish(broker, [sampleEvent(), sampleEvent(), sampleEvent()]);
      expect(results).toEqual(
        Array(3).fill(expect.objectContaining({ status: "unknown", error: expect.objectContaining({ code: "PUBLISH_UNKNOWN" }) as Error })),
      );
      armed = false;
      expect(ids(path)).toHaveLength(rows);
      expect(await publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
    });
  });

  test("a file that stays locked refuses as the destination, and an abort does not wait for it", async () => {
    const path = freshPath();
    await using({ path, lockTimeoutMs: 200 }, async (broker) => {
      await broker.connect(never);
      const other = driver(path);
      other.exec("BEGIN IMMEDIATE");
      expect(await publish(broker, [sampleEvent()])).toMatchObject([
        { status: "refused", blame: "destination", error: { code: "STORE_UNAVAILABLE" } },
      ]);
      await expect(broker.probe(topic, never)).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });

      await using({ path, lockTimeoutMs: 10_000 }, async (patient) => {
        await patient.connect(never);
        const controller = new AbortController();
        const publishing = patient.publish(outgoing([sampleEvent()]), controller.signal);
        controller.abort();
        expect(await within(3_000, "publish", publishing)).toMatchObject([{ status: "refused", blame: "destination" }]);
        other.exec("ROLLBACK");
      });
      other.close();
      const last = sampleEvent();
      await publish(broker, [last]);
      expect(ids(path)).toEqual([last.id]);
    });
  });

  test("an abort while COMMIT waits for a reader is unknown, and the batch stays whole", async () => {
    const path = freshPath();
    const before = sampleEvent();
    await using({ path, lockTimeoutMs: 5_000 }, async (broker) => {
      await publish(broker, [before]);
      // A rollback journal cannot be committed under a reader; where the file is in WAL mode, COMMIT does not wait.
      const waits = sql(path, "PRAGMA journal_mode")[0]?.["journal_mode"] === "delete";
      const reader = driver(path);
      reader.exec("BEGIN");
      reader.prepare("SELECT count(*) FROM waybill_broker_messages").all();
      const controller = new AbortController();
      const events = [sampleEvent(), sampleEvent()];
      const publishing = broker.publish(outgoing(events), controller.signal);
      await quiet(waits ? 150 : 0, "COMMIT did not wait", waits ? publishing : new Promise(() => undefined));
      controller.abort();
      const results = await within(1_000, "publish", publishing);
      expect(results.map(({ status }) => status)).toEqual(waits ? ["unknown", "unknown"] : ["stored", "stored"]);
      reader.exec("COMMIT");
      reader.close();
      await publish(broker, [sampleEvent()]);
      expect(ids(path).slice(0, 3)).toEqual([before.id, ...events.map(({ id }) => id)]);
    });
  });
});
