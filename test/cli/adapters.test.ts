import { existsSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, relative } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { openBroker, openStore } from "../../src/cli/open.ts";

let folder = "";
beforeEach(() => {
  folder = mkdtempSync(join(tmpdir(), "waybill-adapters-"));
});
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function migrated(url: string): Promise<void> {
  await using opened = await openStore(url, { create: true });
  await opened.store.schema.migrate();
}

describe("store URLs", () => {
  test.each([
    ["sqlite:/ABSOLUTE", (path: string) => `sqlite:${path}`],
    ["sqlite:///ABSOLUTE", (path: string) => `sqlite://${path}`],
    ["sqlite:RELATIVE", (path: string) => `sqlite:${relative(process.cwd(), path)}`],
    ["SQLite:PATH", (path: string) => `SQLite:${path}`],
  ])("%s names a file", async (_, url) => {
    const path = join(folder, "a b%20c@d.db");
    await migrated(url(path));
    expect(existsSync(path)).toBe(true);
  });

  test.each([
    ["", /is not a URL: write it as sqlite:\.\/app\.db/],
    ["app.db", /is not a URL/],
    ["sqlite:", /names no file/],
    ["sqlite:///", /names no file/],
    ["sqlite:./folder/", /names no file/],
    ["sqlite://app.db", /names a host/],
    ["sqlite::memory:", /in memory, which cannot be shared/],
    ["sqlite:a.db?mode=ro", /takes no parameters/],
    ["sqlite:a\0.db", /must not hold/],
    ["embedded:./b.db", /is the URL of a broker: a store is written as sqlite/],
    ["kafka://k:9092", /is the URL of a broker/],
    ["postgres://ann:s3cret@db", /"postgres:\/\/\*\*\*@db" names no database: write it as postgres:\/\/user:password@host\/database/],
    ["postgres:///app", /names no host/],
    ["postgres://ann:s3cret@db:port/app", /"postgres:\/\/\*\*\*@db:port\/app" is not a URL/],
    ["mongodb://ann:s3cret@db", /"mongodb:\/\/\*\*\*@db": this version has no adapter for mongodb:, only sqlite:, postgres:/],
    ["constructor:x", /no adapter for constructor:/],
  ])("%j is refused", async (url, message) => {
    await expect(openStore(url, { create: true })).rejects.toMatchObject({ code: "BAD_URL", message });
  });

  test.each([
    ["sqlite:./app.db", /is a file, which knows nothing of listen: leave it out/],
    ["mysql://ann:s3cret@db/app", /"mysql:\/\/\*\*\*@db\/app" has nothing like PostgreSQL's LISTEN/],
  ])("%s is refused with listen, which would do nothing there", async (url, message) => {
    await expect(openStore(url, { create: true, listen: true })).rejects.toMatchObject({ code: "BAD_URL", message });
  });

  test("a file that is not there is made by migrate only", async () => {
    const path = join(folder, "typo.db");
    await expect(openStore(`sqlite:${path}`, { create: false })).rejects.toMatchObject({ code: "NOT_MIGRATED" });
    expect(existsSync(path)).toBe(false);
  });
});

describe("broker URLs", () => {
  test.each([
    ["embedded:", /names no file/],
    ["sqlite:./a.db", /is the URL of a store: a broker is written as embedded/],
    ["pulsar://ann:s3cret@p", /"pulsar:\/\/\*\*\*@p"/],
    ["postgres://db", /is the URL of a store/],
  ])("%j is refused", async (url, message) => {
    await expect(openBroker(url, { create: true })).rejects.toMatchObject({ code: "BAD_URL", message });
  });

  test("topics are made once, and the file only where that is wanted", async () => {
    const url = `embedded:${join(folder, "broker.db")}`;
    await expect(openBroker(url, { create: false })).rejects.toThrow(/there is no file/);
    await using broker = await openBroker(url, { create: true });
    await broker.provision(["a", "b"], []);
    await broker.provision(["a", "b"], []);
    expect(await broker.purge(new Date(), [])).toBe(0);
  });
});

test("an event is added in a transaction of its own", async () => {
  const url = `sqlite:${join(folder, "app.db")}`;
  await migrated(url);
  await using opened = await openStore(url, { create: false });
  const draft = { aggregateType: "Order", aggregateId: "1", type: "OrderPlaced", payload: { n: 1 }, idempotencyKey: "k" };
  const [first] = await opened.add([draft]);
  const [second] = await opened.add([draft]);
  expect(first?.duplicate).toBe(false);
  expect(second).toEqual({ id: first?.id, duplicate: true });
  expect(await opened.store.operator.list({ limit: 10 })).toHaveLength(1);
});
