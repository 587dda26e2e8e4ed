import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { format } from "prettier";
import ts from "typescript";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { adapters } from "../../src/cli/adapters.ts";
import { projectOf, type Stack } from "../../src/cli/init/project.ts";
import { inProcess } from "./in-process.ts";

let folder = "";
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-init-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

const init = (args: readonly string[], answers?: readonly string[]) =>
  inProcess(["init", ...args], { cwd: folder, ...(answers === undefined ? {} : { answers }) });
const names = (): string[] => readdirSync(folder).sort();
const read = (name: string): string => readFileSync(join(folder, name), "utf8");

const stores = adapters.stores.flatMap(({ starter }) => starter ?? []);
const brokers = adapters.brokers.flatMap(({ starter }) => starter ?? []);
const stacks: readonly (readonly [string, Stack])[] = stores.flatMap((store) =>
  store.libraries.flatMap((library) =>
    brokers.map((broker) => [`${store.word}, ${library.word}, ${broker.word}`, { store, library, broker }] as const),
  ),
);

describe("waybill init", () => {
  test("writes the stack of its flags, and prints the next commands with versions that were tested", async () => {
    const { code, stdout, stderr } = await init(["--store", "postgres", "--broker", "nats", "--handle", "drizzle"]);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(names()).toEqual(["compose.yaml", "place-order.mjs", "shipping.mjs", "waybill.config.mjs"]);
    expect(read("place-order.mjs")).toContain("await tx.insert(orders).values(order);");
    expect(read("shipping.mjs")).toContain("const inbox = postgres({ pool, tx: fromDrizzle, db });");
    const { devDependencies } = JSON.parse(readFileSync("package.json", "utf8")) as { devDependencies: Record<string, string> };
    expect(stdout).toContain(`pg@^${devDependencies["pg"]!}`);
    const { stdout: onKafka } = await init(["kafka", "--store", "mysql", "--broker", "kafka"]);
    expect(onKafka).toMatch(/ @platformatic\/kafka@\^1\.35\.0$/m); // 2 needs a newer Node
    expect(stdout).toMatch(/^ {2}npx waybill migrate --consumers shipping +# /m);
    expect(stdout).toMatch(/^ {2}node place-order\.mjs +# /m);
  });

  test("takes the database's own client where no handle is given, and needs no compose file without servers", async () => {
    const { code, stdout } = await init(["shop", "--store", "sqlite", "--broker", "embedded", "--json"]);
    expect(code).toBe(0);
    const { files, commands } = JSON.parse(stdout) as { files: string[]; commands: string[] };
    expect(files).toEqual(["waybill.config.mjs", "place-order.mjs", "shipping.mjs"]);
    expect(readdirSync(join(folder, "shop")).sort()).toEqual([...files].sort());
    expect(commands[0]).toBe("cd shop");
    expect(commands).toContain("npx waybill migrate");
    expect(commands.join()).not.toContain("docker");
  });

  test("writes Prisma's schema with the programs, and says when its client is made", async () => {
    const { code, stdout } = await init(["--store", "postgres", "--broker", "embedded", "--handle", "prisma", "--json"]);
    expect(code).toBe(0);
    const { files, commands } = JSON.parse(stdout) as { files: string[]; commands: string[] };
    expect(files).toContain("prisma/schema.prisma");
    expect(read("prisma/schema.prisma")).toContain('provider = "postgresql"');
    const order = ["npm install ", "npx prisma generate", "npx waybill migrate"].map((word) =>
      commands.findIndex((run) => run.startsWith(word)),
    );
    expect(order).toEqual([...order].sort((a, b) => a - b));
    expect(order).not.toContain(-1);
    expect(await init(["--store", "postgres", "--broker", "embedded", "--handle", "prisma"])).toMatchObject({ code: 2 });
  });

  test("leaves out of npm install what is installed: the package may have come from a tarball", async () => {
    const installed = async (name: string): Promise<readonly string[]> => {
      const { stdout } = await init([name, "--store", "postgres", "--broker", "nats", "--json"]);
      return (JSON.parse(stdout) as { commands: string[] }).commands.filter((command) => command.startsWith("npm install"));
    };
    expect(await installed("one")).toEqual([expect.stringMatching(/^npm install waybill pg@/)]);
    mkdirSync(join(folder, "node_modules/waybill"), { recursive: true });
    writeFileSync(join(folder, "node_modules/waybill/package.json"), "{}");
    expect(await installed("two")).toEqual([expect.stringMatching(/^npm install pg@/)]);
  });

  test("asks on a terminal for what no flag says, by number, by word or with the first as default", async () => {
    const { code, stdout } = await init(["--broker", "redis"], ["5", "postgres", "2"]);
    expect(code).toBe(0);
    expect(stdout).toContain("There are sqlite, postgres, mysql.");
    expect(stdout).not.toContain("Which broker?");
    expect(read("place-order.mjs")).toContain('from "drizzle-orm/node-postgres"');
    expect(read("shipping.mjs")).toContain('from "waybill/redis"');
    rmSync(folder, { recursive: true });
    expect(await init([], ["", ""])).toMatchObject({ code: 0 });
    expect(read("waybill.config.mjs")).toContain('"embedded:./broker.db"');
  });

  test("writes nothing when the answers end", async () => {
    const { code, stderr } = await init([], ["postgres"]);
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("nothing was written") as string });
    expect(names()).toEqual([]);
  });

  test("never overwrites a file: it names those that are there, and the way out", async () => {
    writeFileSync(join(folder, "shipping.mjs"), "mine");
    const { code, stderr } = await init(["--store", "sqlite", "--broker", "embedded"]);
    expect(code).toBe(2);
    expect(stderr).toContain(
      "shipping.mjs is there already, and nothing was written: give another folder (waybill init FOLDER), or move it away",
    );
    expect(names()).toEqual(["shipping.mjs"]);
    expect(read("shipping.mjs")).toBe("mine");
  });

  test.each([
    [[], /asks on a terminal only: give --store sqlite\|postgres\|mysql and --broker embedded\|kafka\|rabbitmq\|nats\|redis/],
    [["--store", "postgres"], /give --broker embedded\|/],
    [["--store", "postgress", "--broker", "nats"], /--store "postgress" is not offered: did you mean postgres\?/],
    [["--store", "sqlite", "--broker", "nats", "--handle", "drizzle"], /--handle "drizzle" is not offered: there are libsql/],
    [["--store", "postgres://ann:s3cret@h/db", "--broker", "nats"], /is not offered/],
    [["a", "b"], /does not know what to do with "b"/],
  ])("%j is refused", async (args, message) => {
    const { code, stderr } = await init(args);
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringMatching(message) as string });
    expect(stderr).not.toContain("s3cret");
    expect(names()).toEqual([]);
  });

  test.skipIf(process.platform !== "linux")("a file system that makes no folders is refused, and does not hang", async () => {
    const { code, stderr } = await init(["/proc/nope/shop", "--store", "sqlite", "--broker", "embedded"]);
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("/proc/nope/shop cannot be written to") as string });
  });

  test("a folder that cannot be made is refused without a stack", async () => {
    writeFileSync(join(folder, "file"), "");
    const { code, stderr } = await init(["file/shop", "--store", "sqlite", "--broker", "embedded"]);
    expect({ code, stderr }).toMatchObject({ code: 2, stderr: expect.stringContaining("file/shop cannot be written to") as string });
  });
});

describe("what init writes", () => {
  test.each(stacks)("for %s is well formed, and imports only what npm install brings", async (_, stack) => {
    const { files, packages } = projectOf(stack);
    for (const [name, text] of files) {
      if (name.endsWith(".prisma")) continue; // Prisma itself reads it, where the project is run
      const parser = name.endsWith(".yaml") ? "yaml" : "babel";
      expect(await format(text, { parser, printWidth: 140 }), name).toBe(text);
      if (!name.endsWith(".mjs")) continue;
      const { importedFiles } = ts.preProcessFile(text);
      const imported = importedFiles.map(({ fileName }) => fileName).filter((file) => !/^(node:|\.)/.test(file));
      const owner = (file: string): string =>
        file
          .split("/")
          .slice(0, file.startsWith("@") ? 2 : 1)
          .join("/");
      expect([...new Set(imported.map(owner))].filter((one) => one !== "waybill" && !packages.includes(one))).toEqual([]);
    }
    // Node 20 has no SQLite of its own, and Waybill brings none.
    if (stack.store.word === "sqlite" || stack.broker.word === "embedded") expect(packages).toContain("libsql");
    const compose = files.get("compose.yaml") ?? "";
    for (const { url, service } of [stack.store, stack.broker])
      if (service !== null) expect(compose).toContain(`127.0.0.1:${new URL(url.replace(/^\w+:/, "http:")).port}:`);
  });
});
