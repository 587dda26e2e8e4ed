import { execFile } from "node:child_process";
import { cpSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, symlinkSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { delimiter, dirname, join, posix } from "node:path";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";
import { afterAll, beforeAll, describe, expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));
const bin = (name: string): string => join(root, "node_modules", name);
const manifest = JSON.parse(readFileSync(join(root, "package.json"), "utf8")) as {
  readonly exports: Readonly<Record<string, string | { readonly types: string }>>;
  readonly typesVersions: unknown;
  readonly devDependencies: Readonly<Record<string, string>>;
};
const doors = Object.keys(manifest.exports)
  .filter((path) => path !== "./package.json")
  .map((path) => `waybill${path.slice(1)}`);

const [major = 0, minor = 0] = process.versions.node.split(".").map(Number);
const hasSqlite = major > 22 || (major === 22 && minor >= 13);

/** As a user's shell has it: this Node first, and nothing of this run's npm and vitest. */
const env = {
  ...Object.fromEntries(
    Object.entries(process.env).filter(
      ([name]) => !/^(npm_|NODE_|VITEST|INIT_CWD)/.test(name) || /^npm_config_(registry|cache|userconfig)$/.test(name),
    ),
  ),
  PATH: [dirname(process.execPath), process.env["PATH"]].join(delimiter),
};

interface Result {
  readonly code: number;
  readonly stdout: string;
  readonly stderr: string;
}

function run(command: string, args: readonly string[], cwd: string): Promise<Result> {
  return new Promise((resolve) => {
    execFile(command, args, { cwd, env, maxBuffer: 64 * 1024 * 1024 }, (error, stdout, stderr) =>
      resolve({ code: error === null ? 0 : typeof error.code === "number" ? error.code : 1, stdout, stderr }),
    );
  });
}

const node = (args: readonly string[], cwd: string): Promise<Result> => run(process.execPath, args, cwd);

let folder: string;
let tarball: string;
let packed: readonly string[];

/** An empty folder with the tarball installed, and whatever else. */
async function project(name: string, ...packages: readonly string[]): Promise<string> {
  const path = join(folder, name);
  mkdirSync(path);
  writeFileSync(join(path, "package.json"), '{ "name": "a-service", "private": true, "type": "module" }');
  const from = packages.length === 0 ? "--offline" : "--prefer-offline";
  const installed = await run("npm", ["install", "--ignore-scripts", "--no-audit", "--no-fund", from, tarball, ...packages], path);
  expect(installed.code, installed.stderr).toBe(0);
  return path;
}

beforeAll(async () => {
  folder = mkdtempSync(join(tmpdir(), "waybill-package-"));
  // A copy, since packing builds anew, and others may be using what is built here.
  const copy = join(folder, "repository");
  mkdirSync(copy);
  for (const name of [
    "package.json",
    "tsconfig.json",
    "tsconfig.build.json",
    "README.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "SECURITY.md",
    "LICENSE",
    "docs",
    "examples",
    "deploy",
    "src",
    "test/support",
  ]) {
    cpSync(join(root, name), join(copy, name), { recursive: true });
  }
  symlinkSync(join(root, "node_modules"), join(copy, "node_modules"));
  mkdirSync(join(copy, "dist"));
  writeFileSync(join(copy, "dist/left-over.js"), "");
  const { code, stdout, stderr } = await run("npm", ["pack", "--json", "--pack-destination", folder], copy);
  expect(code, stderr).toBe(0);
  const listed: unknown = JSON.parse(stdout);
  const [pack] = Object.values(listed as object) as { readonly filename: string; readonly files: readonly { readonly path: string }[] }[];
  tarball = join(folder, pack!.filename);
  packed = pack!.files.map(({ path }) => path);
});

afterAll(() => rmSync(folder, { recursive: true, force: true }));

describe("the package", () => {
  test("holds what src is built to, the docs, the examples, the alerts and the dashboard, the readme, the changelog and the licence, and nothing else", () => {
    const built = readdirSync(join(root, "src"), { recursive: true, encoding: "utf8" })
      .filter((path) => path.endsWith(".ts"))
      .flatMap((path) => [".js", ".d.ts"].map((suffix) => `dist/${path.replaceAll("\\", "/").replace(/\.ts$/, suffix)}`));
    const pages = ["CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "README.md", "SECURITY.md", "package.json"];
    const deployed = readdirSync(join(root, "deploy")).map((name) => `deploy/${name}`);
    expect(packed.filter((path) => !/^(docs|examples)\//.test(path)).sort()).toEqual([...built, ...deployed, ...pages].sort());
    expect(packed.filter((path) => /(^|\/)(node_modules|dist)\//.test(path) && !path.startsWith("dist/"))).toEqual([]);
  });

  test("holds every file that its pages link to", () => {
    const broken = packed
      .filter((path) => path.endsWith(".md"))
      .flatMap((page) => {
        const prose = readFileSync(join(root, page), "utf8").replaceAll(/^```[\s\S]*?^```$/gm, "");
        return [...prose.matchAll(/\]\((?!https?:)([^)#\s]+)/g)]
          .map(([, link]) => posix.join(posix.dirname(page), link!).replace(/\/$/, ""))
          .filter((target) => !packed.some((path) => path === target || path.startsWith(`${target}/`)))
          .map((target) => `${page}: ${target}`);
      });
    expect(broken).toEqual([]);
  });

  test("is as publint wants it", async () => {
    const { code, stdout } = await node([bin("publint/src/cli.js"), "run", tarball, "--strict"], folder);
    expect({ code, stdout }).toEqual({ code: 0, stdout: expect.stringContaining("All good!") as string });
  });

  test("has the types that its modules have, by attw", async () => {
    // An ES module only: what attw's older compiler says of require() is checked with today's compiler, below.
    const args = [bin("@arethetypeswrong/cli/dist/index.js"), tarball, "--profile", "esm-only", "--format", "json"];
    const { code, stdout, stderr } = await node(args, folder);
    expect(code, stdout + stderr).toBe(0);
    const { analysis } = JSON.parse(stdout) as { analysis: { entrypoints: object } };
    expect(Object.keys(analysis.entrypoints)).toEqual([...Object.keys(manifest.exports)]);
  });

  test("leaves out of a bundle what is not used", async () => {
    const path = join(folder, "bundled");
    mkdirSync(path);
    symlinkSync(await installed(), join(path, "node_modules"));
    const modules = async (code: string): Promise<string[]> => {
      writeFileSync(join(path, "main.js"), code);
      const bundle = await rolldown({ input: join(path, "main.js"), platform: "node", logLevel: "silent" });
      const { output } = await bundle.generate({ format: "esm" });
      await bundle.close();
      return output
        .flatMap((chunk) => (chunk.type === "chunk" ? Object.entries(chunk.modules) : []))
        .flatMap(([id, { renderedLength }]) => (renderedLength > 0 ? (/waybill\/dist\/(.*)$/.exec(id)?.slice(1) ?? []) : []));
    };
    const small = await modules('import { createOutbox } from "waybill"; globalThis.out = createOutbox;');
    expect(small).toContain("outbox/outbox.js");
    expect(small.filter((id) => !/^(core|outbox)\//.test(id))).toEqual([]);
    const whole = await modules('import * as waybill from "waybill"; globalThis.out = { ...waybill };');
    expect(whole).toEqual(expect.arrayContaining(["relay/relay.js", "subscriber/subscriber.js", "relay/create-relay.js"]));
  });
});

/** The node_modules of a project with nothing but Waybill. */
let alone: Promise<string> | null = null;
const installed = async (): Promise<string> => join(await (alone ??= project("alone")), "node_modules");
const service = async (): Promise<string> => join(await installed(), "..");

describe("in an empty folder, without any client,", () => {
  test("nothing else is installed", async () => {
    expect(readdirSync(await installed()).filter((name) => !name.startsWith("."))).toEqual(["waybill"]);
  });

  test.each(doors)("%s is loaded by import and by require(), and is the same by both", async (door) => {
    const script = `
      import { createRequire } from "node:module";
      const required = createRequire(import.meta.url)(${JSON.stringify(door)});
      const imported = await import(${JSON.stringify(door)});
      const names = Object.keys(imported);
      if (names.length === 0) throw new Error("nothing is exported");
      for (const name of names) if (required[name] !== imported[name]) throw new Error(name);`;
    expect(await node(["--input-type=module", "--eval", script], await service())).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  test("the first use of SQLite works, or names the package to install", async () => {
    const script = `
      import { sqlite } from "waybill/sqlite";
      import { embedded } from "waybill/embedded";
      const said = [];
      for (const use of [() => sqlite({ path: "first.db" }).schema.migrate(), () => embedded({ path: "second.db" }).provision(["t"])]) {
        await use().then(() => said.push("works"), ({ code, message }) => said.push(code + ": " + message));
      }
      console.log(JSON.stringify(said));`;
    const { stdout } = await node(["--input-type=module", "--eval", script], await service());
    const missing = expect.stringMatching(/^DRIVER_MISSING: .*npm install libsql/) as string;
    expect(JSON.parse(stdout)).toEqual(hasSqlite ? ["works", "works"] : [missing, missing]);
  });

  test("waybill dev works, or names the package to install", async () => {
    const { code, stdout, stderr } = await run("npx", ["--no", "waybill", "dev", "--relays", "1", "--exit-after", "3s"], await service());
    if (hasSqlite) expect({ code, held: summaryOf(stdout).held }, stdout + stderr).toEqual({ code: 0, held: true });
    else {
      expect(code).toBe(1);
      expect(stderr).toMatch(/npm install libsql/);
    }
  });
});

const summaryOf = (stdout: string): { held?: boolean } => JSON.parse(stdout.trim().split("\n").at(-1)!) as { held?: boolean };

describe("a consumer's types", () => {
  const consumer = `
    import { createOutbox, createRelay, createSubscriber, type Draft } from "waybill";
    import { memory, memoryBroker } from "waybill/memory";
    ${doors.map((door, i) => `import * as door${i} from "${door}";`).join("\n    ")}
    export const all = [${doors.map((_, i) => `door${i}`).join(", ")}];
    const store = memory();
    const broker = memoryBroker();
    const outbox = createOutbox({ store });
    const draft: Draft = { aggregateType: "Order", aggregateId: "1", type: "OrderPlaced", payload: { total: 1 } };
    export const added: Promise<{ readonly id: string; readonly duplicate: boolean }> = store.db.transaction((tx) => outbox.add(tx, draft));
    export const stock = createSubscriber({
      consumer: "stock",
      source: broker,
      inbox: store,
      topics: ["order.events"],
      handlers: { OrderPlaced: (event, tx) => void tx.table<string, bigint>("seqs").set(event.id, event.seq) },
    });
    export const relay = createRelay({ store, sink: broker });
    // @ts-expect-error there is no such option, and a relay's types are known to be what they are
    createRelay({ store, sink: broker, bach: 1 });
  `;
  const required = `import waybill = require("waybill");\nexport const outbox: typeof waybill.createOutbox = waybill.createOutbox;\n`;

  const settings = [
    ["module", "node16", "node16"],
    ["module", "nodenext", "nodenext"],
    ["module", "esnext", "bundler"],
    ["commonjs", "nodenext", "nodenext"],
    ["commonjs", "node20", "node16"],
    ["commonjs", "commonjs", "node10"],
    ["commonjs", "commonjs", "bundler"],
    ["commonjs", "preserve", "bundler"],
  ] as const;
  const compiled = async (type: string, module: string, moduleResolution: string): Promise<Result> => {
    const path = join(folder, `types-${type}-${module}-${moduleResolution}`);
    mkdirSync(path);
    symlinkSync(await installed(), join(path, "node_modules"));
    writeFileSync(join(path, "package.json"), JSON.stringify({ type }));
    writeFileSync(join(path, "consumer.ts"), consumer);
    // Of these compilers, nodenext is the one that knows that require() may load an ES module.
    if (module === "nodenext") writeFileSync(join(path, "required.cts"), required);
    const compilerOptions = {
      ...(moduleResolution === "node10" ? { ignoreDeprecations: "6.0" } : {}),
      ...{ module, moduleResolution, target: "es2022", lib: ["es2023"], strict: true, noEmit: true, skipLibCheck: false },
      ...{ exactOptionalPropertyTypes: true, types: ["node"], typeRoots: [bin("@types")] },
    };
    writeFileSync(join(path, "tsconfig.json"), JSON.stringify({ compilerOptions }));
    return node([bin("typescript/bin/tsc"), "-p", "."], path);
  };

  test.each(settings)("compile in a package of type %s with module %s and moduleResolution %s", async (...setting) => {
    expect(await compiled(...setting)).toEqual({ code: 0, stdout: "", stderr: "" });
  });

  test("are refused as docs/typescript.md says with module node16 in a CommonJS package, by the compiler's own rule", async () => {
    const { code, stdout } = await compiled("commonjs", "node16", "node16");
    expect([code, new Set(stdout.match(/TS\d+/g))]).toEqual([2, new Set(["TS1479"])]);
  });

  test("are found by older resolutions at every subpath", () => {
    const { exports, typesVersions } = manifest;
    const wanted: Record<string, readonly string[]> = {};
    for (const [path, door] of Object.entries(exports)) if (typeof door !== "string" && path !== ".") wanted[path.slice(2)] = [door.types];
    expect(typesVersions).toEqual({ "*": wanted });
  });
});

describe("with libsql beside it,", () => {
  let path: string;
  beforeAll(async () => {
    path = await project("with-libsql", `libsql@${manifest.devDependencies["libsql"]}`);
  });

  test("waybill dev works", async () => {
    const { code, stdout, stderr } = await run("npx", ["--no", "waybill", "dev", "--relays", "1", "--exit-after", "3s"], path);
    expect({ code, held: code === 0 && summaryOf(stdout).held }, stdout + stderr).toEqual({ code: 0, held: true });
  });

  test("the README's ten lines compile, run and see a first event arrive", async () => {
    const [, lines = ""] = /```js first-event\.mjs\n([\s\S]*?)```/.exec(readFileSync(join(root, "README.md"), "utf8")) ?? [];
    expect(lines.trim().split("\n")).toHaveLength(10);
    writeFileSync(join(path, "first-event.mts"), lines);
    const compilerOptions = { module: "nodenext", target: "es2023", strict: true, types: ["node"], typeRoots: [bin("@types")] };
    writeFileSync(join(path, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["first-event.mts"] }));
    expect(await node([bin("typescript/bin/tsc"), "-p", "."], path)).toEqual({ code: 0, stdout: "", stderr: "" });
    expect(await node(["first-event.mjs"], path)).toEqual({ code: 0, stdout: "1\n", stderr: "" });
  });

  test("the README's TypeScript compiles and takes an event to its effect", async () => {
    const [, example = ""] = /```js shop\.mjs\n([\s\S]*?)```/.exec(readFileSync(join(root, "README.md"), "utf8")) ?? [];
    writeFileSync(join(path, "shop.mts"), example);
    const compilerOptions = { module: "nodenext", target: "es2023", strict: true, types: ["node"], typeRoots: [bin("@types")] };
    writeFileSync(join(path, "tsconfig.json"), JSON.stringify({ compilerOptions, files: ["shop.mts"] }));
    const compiled = await node([bin("typescript/bin/tsc"), "-p", "."], path);
    expect(compiled).toEqual({ code: 0, stdout: "", stderr: "" });

    const { code, stdout, stderr } = await node(["shop.mjs"], path);
    expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
    expect(stdout).toMatch(/^parcel for o-/m);
  });
});
