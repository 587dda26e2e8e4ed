import { writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { describe, expect, test } from "vitest";
import { embedded, type Embedded, type EmbeddedOptions } from "../../src/brokers/embedded/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { ids, many, never, publish, topic, using } from "./embedded.ts";
import { driver, execute, freshPath } from "./files.ts";

describe("a file that embedded cannot use", () => {
  const receiving = (broker: Embedded): Promise<unknown> => {
    const deliveries = broker.receive({ consumer: "a", topics: [topic], prefetch: 1 }, never);
    return deliveries[Symbol.asyncIterator]().next();
  };

  async function refusesEverything(options: EmbeddedOptions, code: string): Promise<void> {
    await using(options, async (broker) => {
      await expect(broker.connect(never)).rejects.toMatchObject({ code });
      await expect(broker.probe(topic, never)).rejects.toMatchObject({ code });
      await expect(receiving(broker)).rejects.toMatchObject({ code });
      await expect(broker.provision([topic])).rejects.toMatchObject({ code });
      await expect(broker.purge(new Date())).rejects.toMatchObject({ code });
      expect(await publish(broker, [sampleEvent(), sampleEvent()])).toMatchObject([
        { status: "refused", blame: "destination", retryable: true, error: { code } },
        { status: "skipped" },
      ]);
    });
  }

  test("with tables of a newer version is refused, and left as it is", async () => {
    const path = freshPath();
    await using({ path }, (broker) => publish(broker, many(1)));
    execute(path, "INSERT INTO waybill_broker_schema VALUES (3, 'f', '')");
    await refusesEverything({ path }, "SCHEMA_NEWER");
    expect(ids(path)).toHaveLength(1);
  });

  test.each([
    ["without a fingerprint", "ALTER TABLE waybill_broker_schema DROP COLUMN fingerprint"],
    ["with another fingerprint", "UPDATE waybill_broker_schema SET fingerprint = 'another'"],
  ])("with tables of an unreleased build, %s, is refused, and left as it is", async (_, sql) => {
    const path = freshPath();
    await using({ path }, (broker) => publish(broker, many(1)));
    execute(path, sql);
    await refusesEverything({ path }, "SCHEMA_UNRELEASED");
    expect(ids(path)).toHaveLength(1);
  });

  test("that is no database is refused", async () => {
    const path = freshPath();
    writeFileSync(path, "this is a text file, and not a short one: ".repeat(200));
    await refusesEverything({ path }, "STORE_CORRUPT");
  });

  test("that cannot be written is refused", async () => {
    const path = freshPath();
    const open = (file: string) => {
      const db = driver(file);
      db.exec("PRAGMA query_only = 1");
      return db;
    };
    await refusesEverything({ path, open }, "STORE_READ_ONLY");
  });

  test("in a folder that is not there is refused", async () => {
    await refusesEverything({ path: join(dirname(freshPath()), "missing", "broker.db") }, "STORE_UNAVAILABLE");
  });

  test("can be used once it is mended", async () => {
    const path = freshPath();
    await using({ path }, async (broker) => {
      writeFileSync(path, "this is a text file, and not a short one: ".repeat(200));
      await expect(broker.connect(never)).rejects.toMatchObject({ code: "STORE_CORRUPT" });
      writeFileSync(path, "");
      expect(await publish(broker, [sampleEvent()])).toEqual([{ status: "stored" }]);
    });
  });

  test("and options that cannot be are refused at once", () => {
    const code = (wrong: object) => () => embedded({ path: "x.db", ...wrong });
    for (const wrong of [
      { path: "" },
      { path: ":memory:" },
      { path: undefined },
      { maxBytes: 0 },
      { pollIntervalMs: -1 },
      { lockTimeoutMs: NaN },
      { pth: 1 },
    ]) {
      expect(code(wrong)).toThrow(expect.objectContaining({ code: "INVALID_OPTION" }));
    }
    for (const wrong of [{ consumer: "" }, { topics: [] }, { prefetch: 0 }, { waiting: 0.5 }]) {
      expect(() => embedded({ path: "x.db" }).receive({ consumer: "a", topics: ["t"], prefetch: 1, ...wrong }, never)).toThrow(
        expect.objectContaining({ code: "INVALID_OPTION" }),
      );
    }
  });
});
