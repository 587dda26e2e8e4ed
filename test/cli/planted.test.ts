import { mkdtempSync, readdirSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { adapters } from "../../src/cli/adapters.ts";
import type { BrokerAdapter, Server, StoreAdapter } from "../../src/contracts/adapter.ts";
import { refuseUrl, type Url } from "../../src/core/url.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { memory, type MemoryDb, type MemoryTx } from "../../src/stores/memory/index.ts";
import { beside } from "../../src/stores/kit/describe.ts";
import { later } from "../../src/stores/kit/pool.ts";
import type { Result } from "./build.ts";
import { inProcess } from "./in-process.ts";

/** A store and a broker that the command line has never heard of: servers, whose data outlives each command of this process. */
function planted(): { readonly store: StoreAdapter; readonly broker: BrokerAdapter } {
  const kept = memory();
  const log = memoryBroker();
  const hostOf = (url: Url): string => (/^\/\/[^/]+$/.test(url.rest) ? url.rest.slice(2) : refuseUrl(url, "names no garden"));
  const plain: Pick<Server, "remedy" | "guard"> = { remedy: "write the URL with roses:", guard: () => "none" };
  const unused = (): never => {
    throw new Error("verify is driven in planted.slow.test.ts");
  };
  return {
    store: {
      name: "Beetle",
      schemes: ["beetle"],
      example: "beetle://garden",
      rules: [],
      server: { port: 1111, ...plain },
      noTail: "a beetle leaves no trace",
      open(url) {
        hostOf(url);
        const store = { ...kept, [Symbol.asyncDispose]: async () => undefined };
        const db = later<MemoryDb>(
          async () => kept.db,
          () => undefined,
        );
        return beside<MemoryDb, MemoryTx>(store, db);
      },
      openRun: unused,
    },
    broker: {
      name: "Rose",
      schemes: ["rose", "roses"],
      example: "rose://garden",
      rules: [],
      server: { port: 2222, ...plain },
      management: "the gardener",
      open(url) {
        hostOf(url);
        const broker = log.reopen();
        return {
          sink: { ...broker, examine: async () => [] },
          provision: (topics) => broker.provision(topics),
          purge: (before) => broker.purge(before),
        };
      },
      openRun: unused,
    },
  };
}

let folder = "";
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-planted-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

describe("an adapter that is one entry in the table", () => {
  const places = ["--store", "beetle://garden", "--broker", "rose://garden"];
  const [store, broker] = [places.slice(0, 2), places.slice(2)];
  const within = () => {
    const mine = planted();
    const table = { stores: [...adapters.stores, mine.store], brokers: [...adapters.brokers, mine.broker] };
    return (...args: string[]): Promise<Result> => inProcess(args, { cwd: folder, adapters: table });
  };
  const answer = async (running: Promise<Result>): Promise<unknown> => {
    const { code, stdout, stderr } = await running;
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    return JSON.parse(stdout);
  };

  test("goes the whole path: migrate, add, list, relay, status, doctor and purge", async () => {
    const run = within();
    expect(await answer(run("migrate", ...places, "--topics", "order.events", "--json"))).toMatchObject({ topics: ["order.events"] });
    const event = ["--aggregate-type", "Order", "--aggregate-id", "1", "--type", "OrderPlaced", "--payload", "{}"];
    const { id } = (await answer(run("events", "add", ...store, ...event, "--json"))) as { id: string };
    expect(await answer(run("events", "list", ...store, "--json"))).toMatchObject({ events: [{ id, state: "PENDING" }] });
    expect(await answer(run("relay", ...places, "--once", "--json"))).toMatchObject({ published: 1, failed: 0 });
    expect(await answer(run("status", ...store, "--json"))).toMatchObject({ states: { PUBLISHED: 1, PENDING: 0 } });
    expect(await answer(run("doctor", ...places, "--topics", "order.events", "--management", "http://gardener", "--json"))).toMatchObject({
      topics: ["order.events"],
      findings: expect.arrayContaining([
        expect.objectContaining({ of: "store", setting: "encryption", value: "none, to garden" }),
        expect.objectContaining({
          of: "broker",
          setting: "encryption",
          why: expect.stringContaining("write the URL with roses:") as string,
        }),
      ]) as unknown,
    });
    expect(await answer(run("purge", ...places, "--older-than", "0s", "--json"))).toMatchObject({ events: 1, messages: 1 });
    expect(await answer(run("events", "list", ...store, "--json"))).toEqual({ events: [] });
  });

  test("is in the help, and in what is said of other URLs", async () => {
    const run = within();
    const { stdout } = await run("--help");
    expect(stdout).toMatch(/^ {2}--store beetle:\/\/garden +Beetle$/m);
    expect(stdout).toMatch(/^ {2}--broker rose:\/\/garden +Rose; also roses:$/m);
    const refused = async (...args: string[]): Promise<string> => {
      const { code, stderr } = await run(...args);
      expect(code).toBe(2);
      return stderr;
    };
    expect(await refused("status", "--store", "wasp://a:s3cret@garden")).toMatch(/"wasp:\/\/\*\*\*@garden": .*mariadb:, beetle: \(sqlite:/);
    expect(await refused("status", "--store", "rose://garden")).toContain("is the URL of a broker");
    expect(await refused("status", "--store", "beetle://a:s3cret@garden/bed")).toContain('"beetle://***@garden/bed" names no garden');
    expect(await refused("relay", ...store, ...broker, "--mode", "tail")).toContain("a beetle leaves no trace");
    expect(await refused("doctor", "--broker", "nats://h", "--management", "http://h")).toContain("amqps: and rose: and roses: alone");
  });
});

test("every adapter lists its schemes in help, and no two have the same", async () => {
  const { stdout } = await inProcess(["--help"], { cwd: folder });
  const all = [...adapters.stores, ...adapters.brokers];
  for (const { name, schemes, example } of all) for (const words of [name, example, ...schemes]) expect(stdout).toContain(words);
  const schemes = all.flatMap((adapter) => adapter.schemes);
  expect(new Set(schemes).size).toBe(schemes.length);
});

test("outside the table, the command line imports no adapter", () => {
  const cli = new URL("../../src/cli/", import.meta.url);
  const files = readdirSync(cli, { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  const naming = files.filter((name) => /from "(\.\.\/)+(stores|brokers)\/(?!kit\/)/.test(readFileSync(new URL(name, cli), "utf8")));
  expect(naming).toEqual(["adapters.ts"]);
});
