import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { settingsOf } from "../src/brokers/kafka/url.ts";
import { adapterOf } from "../src/cli/adapters.ts";
import { readConfig } from "../src/cli/config.ts";
import { targetOf } from "../src/proof/run/network.ts";
import type { Envelope } from "../src/core/event.ts";
import type { StandardSchema } from "../src/core/standard-schema.ts";
import { defineEvents, fit } from "../src/outbox/catalogue.ts";
import { routeOf, topicOf } from "../src/relay/route.ts";
import { resultCode } from "../src/drivers/sqlite/driver.ts";
import { schemaIn } from "../src/subscriber/event.ts";
import { inProcess } from "./cli/in-process.ts";

/** Every object answers to these, unless it is asked for what is its own. */
const names = ["constructor", "__proto__", "toString", "hasOwnProperty", "valueOf", "isPrototypeOf"];

const schema: StandardSchema = { "~standard": { version: 1, vendor: "test", validate: (value) => ({ value }) } };
const events = defineEvents({ OrderPlaced: schema });
const envelope = (headers: Readonly<Record<string, string>>): Envelope => ({
  ...{ id: "1", seq: 1n, aggregateType: "Order", aggregateId: "1", type: "OrderPlaced", eventVersion: 1, data: new Uint8Array() },
  ...{ contentType: "application/json", headers, idempotencyKey: null, createdAt: new Date(0) },
});
const own = (name: string, value: unknown): Record<string, never> =>
  JSON.parse(`{${JSON.stringify(name)}:${JSON.stringify(value)}}`) as Record<string, never>;
const draft = (type: string) => ({ aggregateType: "Order", aggregateId: "1", type, payload: {} });

/** What each look-up does with a name that nobody gave it. */
const refusals: Readonly<Record<string, readonly [(name: string) => unknown, string]>> = {
  "an event type of the catalogue": [(name) => fit(events, draft(name)), "UNKNOWN_EVENT_TYPE"],
  "a field of a route": [(name) => routeOf(`{${name}}`), "INVALID_OPTION"],
  "a field of a route in lower case": [(name) => routeOf(`x.{${name}|lower}`), "INVALID_OPTION"],
  "a header that a route needs": [(name) => routeOf(`{header:${name}}`)(envelope({ tenant: "a" })), "ROUTE_FAILED"],
  "a mechanism of Kafka": [(name) => settingsOf(`kafka://ann:s3cret@host?sasl=${name}`), "BAD_URL"],
  "a key of the configuration": [(name) => readConfig(own(name, "x"), "waybill.config.json"), "CONFIG_INVALID"],
  "a key of retry in the configuration": [(name) => readConfig({ retry: own(name, 1) }, "waybill.config.json"), "INVALID_OPTION"],
};

describe.each(names)("%s is a name like any other", (name) => {
  test.each(Object.entries(refusals))("as %s it is unknown", (_, [look, code]) => {
    expect(() => look(name)).toThrow(expect.objectContaining({ code }) as Error);
  });

  test("as a type it has no schema, as a scheme no port, and as a code of SQLite none", () => {
    expect(schemaIn({ OrderPlaced: schema }, name)).toBeNull();
    expect(targetOf(`${name}://host/db`, adapterOf(`${name}://host/db`)?.server ?? null)).toBeTypeOf("string");
    expect(resultCode({ code: `SQLITE_${name}` })).toBe(0);
  });

  test("as a header that an event has, it is found by its route", () => {
    expect(topicOf(routeOf(`{header:${name}}`), envelope(own(name, "tenant-1")))).toBe("tenant-1");
  });
});

describe("on the command line", () => {
  const home = process.cwd();
  let folder = "";
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "waybill-names-"));
    process.chdir(folder);
  });
  afterEach(() => {
    process.chdir(home);
    rmSync(folder, { recursive: true, force: true });
  });
  const run = (...args: string[]) => inProcess(args, { cwd: folder });

  test.each(names)("%s is no command, action, flag, scheme, state or key", async (name) => {
    writeFileSync("config.json", JSON.stringify(own(name, "x")));
    const commands = [
      [name],
      ["help", name],
      ["events", name],
      ["status", `--${name}`],
      ["status", `--${name}=1`],
      ["status", "--store", `${name}:x`],
      ["doctor", "--broker", `${name}:x`],
      ["events", "list", "--store", "sqlite:x.db", "--state", name],
      ["relay", "--store", "sqlite:x.db", "--lease", `1${name}`],
      ["status", "--store", "sqlite:x.db", "--config", "config.json"],
    ];
    for (const args of commands) {
      const { code, stderr } = await run(...args);
      expect({ args, code }).toEqual({ args, code: 2 });
      expect(stderr).not.toMatch(/not expected|not a function|undefined|\[object/);
    }
  });

  test.each(names)("%s as type, aggregate and header goes through the store as it is", async (name) => {
    expect(await run("migrate", "--store", "sqlite:x.db")).toMatchObject({ code: 0 });
    const about = ["--aggregate-type", name, "--aggregate-id", name, "--type", name, "--header", `${name}=v`];
    const { stdout, stderr } = await run("events", "add", "--store", "sqlite:x.db", ...about, "--payload", `{"${name}":1}`, "--json");
    expect(stderr).toBe("");
    const { id } = JSON.parse(stdout) as { id: string };
    const shown = JSON.parse((await run("events", "show", id, "--store", "sqlite:x.db", "--json")).stdout) as Record<string, unknown>;
    expect(shown).toMatchObject({ aggregateType: name, aggregateId: name, type: name, payload: `{"${name}":1}` });
    expect(Object.entries(shown["headers"] as object)).toEqual([[name, "v"]]);
    expect(({} as Record<string, unknown>)["v"]).toBeUndefined();
  });
});
