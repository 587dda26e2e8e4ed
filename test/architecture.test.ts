import { readdirSync, readFileSync } from "node:fs";
import { posix } from "node:path";
import { describe, expect, test } from "vitest";
import { sharedNames } from "./architecture/names.ts";
import { violations } from "./architecture/rules.ts";

const root = new URL("../", import.meta.url);

function sources(): Map<string, string> {
  const paths = readdirSync(new URL("src", root), { recursive: true, encoding: "utf8" }).map((path) =>
    posix.join("src", path.replaceAll("\\", "/")),
  );
  return new Map(paths.filter((path) => path.endsWith(".ts")).map((path) => [path, readFileSync(new URL(path, root), "utf8")]));
}

/** A small tree that keeps every rule; each case below breaks one. */
const sound = {
  "src/index.ts": `export { createRelay } from "./relay/create-relay.ts";\n`,
  "src/memory.ts": `export { memory } from "./stores/memory/index.ts";\n`,
  "src/core/event.ts": `import { hash } from "node:crypto";\nexport const event = hash;\n`,
  "src/core/lane.ts": `export const lane = 1;\n`,
  "src/contracts/sink.ts": `import type { event } from "../core/event.ts";\nexport type Sink = typeof event;\n`,
  "src/outbox/outbox.ts": `export const add = 1;\n`,
  "src/outbox/handles/index.ts": `export const fromPg = 1;\n`,
  "src/relay/relay.ts": `import type { Sink } from "../contracts/sink.ts";\nexport const run = (x: unknown): Sink => x as Sink;\n`,
  "src/relay/create-relay.ts": `import { run } from "./relay.ts";\nimport { lease } from "./lanes/leases.ts";\nexport const createRelay = () => run(lease);\n`,
  "src/relay/lanes/leases.ts": `export const lease = 1;\n`,
  "src/drivers/sqlite/driver.ts": `export const open = async (name: string) => import(name);\n`,
  "src/stores/kit/expiry.ts": `export const expiry = 1;\n`,
  "src/stores/memory/index.ts": `import { lane } from "../../core/lane.ts";\nimport { expiry } from "../kit/expiry.ts";\nexport const memory = lane + expiry;\n`,
  "src/stores/memory/names.ts": `export const quote = (name: string) => name;\n`,
  "src/stores/memory/schema.sql.ts": `import type { event } from "../../core/event.ts";\nimport { quote } from "./names.ts";\nexport const sql: typeof event = quote("a");\n${"\n".repeat(400)}`,
  "src/stores/sqlite/index.ts": `import { open } from "../../drivers/sqlite/driver.ts";\nexport const sqlite = open;\n`,
  "src/brokers/kafka/driver.ts": `import { Kafka } from "some-client";\nexport const kafka = Kafka;\n`,
  "src/proof/judge/check.ts": `export const check = 1;\n`,
  "src/proof/run/run.ts": `import { check } from "../judge/check.ts";\nimport { createRelay } from "../../relay/create-relay.ts";\nexport const run = [check, createRelay];\n`,
  "src/conformance/sink.ts": `import type { Sink } from "../contracts/sink.ts";\nexport const suite = (sink: Sink) => sink;\n`,
  "src/cli/main.ts": `import { sqlite } from "../stores/sqlite/index.ts";\nexport const main = sqlite;\n`,
} as const;

describe("the import directions", () => {
  test("hold in src", () => {
    const files = sources();
    expect(files.size).toBeGreaterThan(20);
    expect(violations(files)).toEqual([]);
  });

  test("hold in a sound tree", () => {
    expect(violations(new Map(Object.entries(sound)))).toEqual([]);
  });

  const planted: readonly (readonly [broken: string, path: string, source: string, told: RegExp])[] = [
    ["core imports a contract", "src/core/lane.ts", `import type { Sink } from "../contracts/sink.ts";\n`, /core may not import contracts/],
    ["core imports a package", "src/core/lane.ts", `import { z } from "zod";\n`, /lane\.ts: imports zod, a package/],
    ["a contract has a value", "src/contracts/sink.ts", `export const sink = 1;\n`, /more than types/],
    [
      "a contract imports a value",
      "src/contracts/sink.ts",
      `import { lane } from "../core/lane.ts";\nexport type L = typeof lane;\n`,
      /more than types/,
    ],
    ["a contract imports a built-in", "src/contracts/sink.ts", `import type { Socket } from "node:net";\n`, /contracts import core only/],
    [
      "a runtime folder imports another",
      "src/relay/relay.ts",
      `import { add } from "../outbox/outbox.ts";\n`,
      /relay may not import outbox/,
    ],
    [
      "a runtime folder imports an adapter",
      "src/relay/relay.ts",
      `import { memory } from "../stores/memory/index.ts";\n`,
      /relay may not import stores\/memory/,
    ],
    [
      "a runtime folder imports one in a type position",
      "src/relay/relay.ts",
      `export type L = import("../outbox/outbox.ts").L;\n`,
      /may not import outbox/,
    ],
    [
      "a runtime folder imports one at run time",
      "src/relay/relay.ts",
      `export const l = import("../outbox/outbox.ts");\n`,
      /may not import outbox/,
    ],
    ["a runtime folder re-exports another", "src/relay/relay.ts", `export { add } from "../outbox/outbox.ts";\n`, /may not import outbox/],
    [
      "a runtime folder imports a composition",
      "src/relay/relay.ts",
      `import { createRelay } from "../index.ts";\n`,
      /relay may not import root/,
    ],
    [
      "a room inside a room imports the outer one",
      "src/relay/lanes/leases.ts",
      `import { run } from "../relay.ts";\n`,
      /relay\/lanes may not import relay/,
    ],
    [
      "a broker imports the kit of the stores",
      "src/brokers/kafka/sink.ts",
      `import { expiry } from "../../stores/kit/expiry.ts";\n`,
      /brokers\/kafka may not import stores\/kit/,
    ],
    [
      "a kit imports an adapter",
      "src/stores/kit/more.ts",
      `import { sqlite } from "../sqlite/index.ts";\n`,
      /stores\/kit may not import stores\/sqlite/,
    ],
    ["a runtime folder has an index", "src/relay/index.ts", `export const relay = 1;\n`, /an index in a runtime folder/],
    [
      "an adapter imports another",
      "src/stores/memory/index.ts",
      `import { sqlite } from "../sqlite/index.ts";\n`,
      /stores\/memory may not import stores\/sqlite/,
    ],
    [
      "an adapter imports a runtime folder",
      "src/stores/memory/index.ts",
      `import { run } from "../../relay/relay.ts";\n`,
      /may not import relay/,
    ],
    [
      "the shared driver goes to a third adapter",
      "src/stores/memory/index.ts",
      `import { open } from "../../drivers/sqlite/driver.ts";\n`,
      /may not import drivers\/sqlite/,
    ],
    [
      "an adapter imports a package outside its driver",
      "src/brokers/kafka/sink.ts",
      `import { Kafka } from "some-client";\n`,
      /only a driver\.ts may do/,
    ],
    [
      "a driver.ts that is no adapter's imports a package",
      "src/relay/driver.ts",
      `import { Kafka } from "some-client";\n`,
      /only a driver\.ts may do/,
    ],
    ["a computed import outside a driver", "src/relay/relay.ts", `export const load = (x: string) => import(x);\n`, /a computed import/],
    [
      "the index names an adapter",
      "src/index.ts",
      `export { sqlite } from "./stores/sqlite/index.ts";\n`,
      /root may not import stores\/sqlite/,
    ],
    [
      "the memory door names another adapter",
      "src/memory.ts",
      `export { sqlite } from "./stores/sqlite/index.ts";\n`,
      /root may not import stores\/sqlite/,
    ],
    [
      "the checker of a run imports its engine",
      "src/proof/judge/check.ts",
      `import { run } from "../run/run.ts";\n`,
      /proof\/judge may not import proof\/run/,
    ],
    [
      "the engine of a run imports the command line",
      "src/proof/run/run.ts",
      `import { main } from "../../cli/main.ts";\n`,
      /proof\/run may not import cli/,
    ],
    ["the suite is imported", "src/cli/main.ts", `import { suite } from "../conformance/sink.ts";\n`, /cli may not import conformance/],
    [
      "the suite imports an adapter",
      "src/conformance/sink.ts",
      `import { memory } from "../stores/memory/index.ts";\n`,
      /conformance may not import stores\/memory/,
    ],
    ["a test is imported", "src/cli/main.ts", `import { help } from "../../test/help.ts";\n`, /not a file of src/],
    ["an import without its suffix", "src/cli/main.ts", `import { sqlite } from "../stores/sqlite/index";\n`, /not a file of src/],
    ["everything is exported", "src/index.ts", `export * from "./relay/create-relay.ts";\n`, /export \*/],
    ["everything is exported under a name", "src/index.ts", `export * as all from "./relay/create-relay.ts";\n`, /export \*/],
    [
      "a cycle",
      "src/core/lane.ts",
      `export { event } from "./more.ts";\n`,
      /a cycle: src\/core\/lane\.ts → src\/core\/more\.ts → src\/core\/lane\.ts/,
    ],
    ["a file that is too long", "src/core/lane.ts", "export {};\n".repeat(351), /351 lines/],
    ["a mark left behind", "src/core/lane.ts", "// TO" + "DO: later\n", /holds TODO/],
    ["a lint rule switched off", "src/core/lane.ts", "// eslint" + "-disable-next-line\n", /holds eslint-disable/],
    [
      "a schema depends on the runtime",
      "src/stores/memory/schema.sql.ts",
      `import { memory } from "./index.ts";\nexport const sql = memory;\n`,
      /imports \.\/index\.ts, but a schema imports names and types only/,
    ],
    ["a room without a rule", "src/utils/strings.ts", `export const trim = 1;\n`, /the room utils has no rule/],
  ];
  test.each(planted)("break when %s", (_, path, source, told) => {
    const tree = new Map<string, string>(
      Object.entries({ ...sound, "src/core/more.ts": `export { lane as event } from "./lane.ts";\n`, [path]: source }),
    );
    expect(violations(tree).join("\n")).toMatch(told);
  });

  test("are not confused by text that looks like an import", () => {
    const text = '// import { x } from "zod";\nexport const sql = `\nimport y from "zod";\n`;\n';
    expect(violations(new Map([...Object.entries(sound), ["src/relay/sql.ts", text]]))).toEqual([]);
  });

  test("allow a file of exactly 350 lines", () => {
    expect(violations(new Map([["src/core/lane.ts", "export {};\n".repeat(350)]]))).toEqual([]);
  });
});

describe("the names of exported types", () => {
  test("mean one thing each in src", () => {
    expect(sharedNames(sources())).toEqual([]);
  });

  test("are refused when two files give them different meanings, and not when two adapters have the same part", () => {
    const of = (...paths: string[]): ReadonlyMap<string, string> => new Map(paths.map((path) => [path, "export interface Fate {}\n"]));
    expect(sharedNames(of("src/relay/fate.ts", "src/testing/fate.ts"))).toEqual([
      "Fate is a type in src/relay/fate.ts and in src/testing/fate.ts: one name for one thing",
    ]);
    expect(sharedNames(of("src/brokers/kafka/fate.ts", "src/brokers/nats/other.ts"))).toHaveLength(1);
    expect(sharedNames(of("src/brokers/kit/fate.ts", "src/brokers/nats/fate.ts"))).toHaveLength(1);
    expect(sharedNames(of("src/brokers/kafka/fate.ts", "src/brokers/nats/fate.ts"))).toEqual([]);
  });
});
