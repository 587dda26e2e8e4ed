import { existsSync, mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { describe, expect, test } from "vitest";
import { apiPage, doors } from "../scripts/api-page.mjs";
import { errorsPage } from "../scripts/errors-page.mjs";
import { configKeys } from "../src/cli/config.ts";
import { commonFlags } from "../src/cli/parse.ts";
import { commands } from "../src/cli/program.ts";
import { errorTable } from "../src/core/errors.ts";
import { sentences } from "../src/core/log.ts";
import { counters, gauges, publishLatency } from "../src/observe/metrics.ts";
import { defaultDriver } from "../src/drivers/sqlite/driver.ts";
import { inProcess } from "./cli/in-process.ts";

const root = new URL("../", import.meta.url);
const read = (path: string): string => readFileSync(new URL(path, root), "utf8");

const pages = [
  ...readdirSync(root).filter((name) => name.endsWith(".md")),
  ...readdirSync(new URL("docs", root), { recursive: true, encoding: "utf8" })
    .filter((name) => name.endsWith(".md"))
    .map((name) => `docs/${name.replaceAll("\\", "/")}`),
];

describe("the docs", () => {
  test("errors.md is what the table says (npm run docs writes it)", () => {
    expect(read("docs/errors.md")).toBe(errorsPage(errorTable));
  });

  test("a change of the table changes the page", () => {
    const { USAGE, ...rest } = errorTable;
    expect(errorsPage(rest)).not.toContain("`USAGE`");
    expect(errorsPage({ ...rest, USAGE: { ...USAGE, remedy: "a | b" } })).toContain("a \\| b");
  });

  test("api.md is what the types say (npm run docs writes it)", { timeout: 300_000 }, () => {
    const page = apiPage(doors());
    expect(page === read("docs/api.md"), "docs/api.md is out of date: npm run docs").toBe(true);
  });

  test("a change of the types changes the page", { timeout: 60_000 }, () => {
    const cache = fileURLToPath(new URL(".cache", root));
    mkdirSync(cache, { recursive: true });
    const folder = mkdtempSync(join(cache, "api-"));
    try {
      const hidden = "interface Hidden {\n  /** Why. */\n  readonly here: true;\n}\n";
      const visible = ["/** What it is. */", "export function made(of: Hidden): string;", "export function made(of: 1): 1;"].join("\n");
      const body = "\nexport function made(of: unknown): unknown {\n  return of;\n}\n";
      writeFileSync(join(folder, "index.ts"), `${hidden}${visible}${body}export const own = 7;\n`);
      const page = apiPage([{ name: "toy", source: join(folder, "index.ts") }]);
      const code = (...lines: string[]): string => ["```ts", ...lines, "```", ""].join("\n");
      expect(page).toContain(
        `## toy\n\n### made\n\nWhat it is.\n\n${code("function made(of: Hidden): string;", "function made(of: 1): 1;")}`,
      );
      expect(page).toContain(`### own\n\n${code("const own = 7;")}`);
      expect(page).toContain(`### Hidden\n\n${code("interface Hidden {", "  /** Why. */", "  readonly here: true;", "}")}`);
    } finally {
      rmSync(folder, { recursive: true });
    }
  });

  test.each(pages)("%s links only to what is there", (page) => {
    const prose = read(page).replaceAll(/^```[\s\S]*?^```$/gm, "");
    const links = [...prose.matchAll(/\]\((?!https?:)([^)#\s]*)(?:#([^)\s]+))?\)/g)];
    const broken = links.filter(([, path = "", anchor]) => {
      const target = path === "" ? new URL(page, root) : new URL(path, new URL(page, root));
      return !existsSync(target) || (anchor !== undefined && !anchorsOf(readFileSync(target, "utf8")).has(anchor));
    });
    expect(broken.map(([link]) => link)).toEqual([]);
    const absolute = [...prose.matchAll(/\]\(https:\/\/github\.com\/waybill-js\/waybill\/blob\/main\/([^)#\s]+)/g)].map(
      ([, path]) => path!,
    );
    expect(absolute.filter((path) => !existsSync(new URL(path, root)))).toEqual([]);
  });

  test("no message points to a page by a path that its reader may not have, or to a page that is not there", () => {
    const sources = readdirSync(new URL("src", root), { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
    const wrong = sources.flatMap((name) => {
      const code = read(`src/${name}`).replaceAll(/\/\*[\s\S]*?\*\/|^\s*\/\/.*$/gm, "");
      const byPath = [...code.matchAll(/(?<!blob\/main\/)docs\/[\w-]+\.md/g)].map(([path]) => `${name}: ${path}`);
      const pages = [...code.matchAll(/pageOf\("([^"]+)"\)/g)].map(([, page]) => page!);
      return [...byPath, ...pages.filter((page) => !existsSync(new URL(`docs/${page}`, root))).map((page) => `${name}: no ${page}`)];
    });
    expect(wrong).toEqual([]);
  });

  test.each(pages)("%s has only commands that there are, with flags that they have", async (page) => {
    for (const [command, ...flags] of commandsOf(read(page))) {
      const { code, stdout } = await inProcess([...command!.split(" "), "--help"], { cwd: fileURLToPath(root) });
      expect([command, code]).toEqual([command, 0]);
      expect({ command, unknown: flags.filter((flag) => !stdout.includes(`${flag} `)) }).toEqual({ command, unknown: [] });
    }
  });

  test("README.md links to every page of the docs, and their index to every decision too", () => {
    const missing = (from: string, link: (page: string) => string): readonly string[] =>
      pages.filter((page) => page.startsWith("docs/") && page !== from && !read(from).includes(`](${link(page)})`));
    expect(missing("docs/README.md", (page) => page.replace("docs/", ""))).toEqual([]);
    expect(missing("README.md", (page) => page).filter((page) => !page.startsWith("docs/decisions/"))).toEqual([]);
  });

  test("README.md names the versions that the tests run with", async () => {
    const { version } = JSON.parse(read("node_modules/libsql/package.json")) as { version: string };
    const db = (await defaultDriver())(":memory:");
    const [row] = db.prepare("SELECT sqlite_version() AS version").all() as { version: string }[];
    db.close();
    expect(read("README.md")).toContain(`\`libsql\` ${version}`);
    if (process.versions.node.startsWith("20.")) expect(read("README.md")).toContain(`SQLite ${row!.version}`);
  });

  test("cli.md has every command and key, and in each command's section exactly the flags that it has", () => {
    const page = read("docs/cli.md");
    const sections = new Map(page.split(/^## /m).map((text) => [text.split("\n")[0]!, text]));
    const everywhere = [...Object.keys(commonFlags), "store", "store-file", "broker-file", "management-file"];
    const wrong: string[] = [];
    for (const group of new Set(commands.map(({ name }) => name.split(" ")[0]!))) {
      const ours = commands.filter(({ name }) => name.split(" ")[0] === group);
      const section = sections.get(group) ?? "";
      const known = ours.flatMap(({ flags }) => Object.keys(flags));
      const named = [...section.matchAll(/--([a-z]+(?:-[a-z]+)*)/g)].map(([, flag]) => flag!);
      wrong.push(
        ...ours.filter(({ name }) => !section.includes(`waybill ${name}`)).map(({ name }) => `cli.md lacks ${name}`),
        ...known.filter((flag) => !named.includes(flag) && !everywhere.includes(flag)).map((flag) => `${group} lacks --${flag}`),
        ...named.filter((flag) => !known.includes(flag) && !everywhere.includes(flag)).map((flag) => `${group} has no --${flag}`),
      );
    }
    wrong.push(...everywhere.filter((flag) => !page.includes(`--${flag}`)).map((flag) => `cli.md lacks --${flag}`));
    wrong.push(
      ...configKeys()
        .filter((key) => !page.includes(`\`${key}\``))
        .map((key) => `cli.md lacks ${key}`),
    );
    expect(wrong).toEqual([]);
  });

  test("README.md has a row for every database and broker, and no other", () => {
    const rows = [...read("README.md").matchAll(/^\| [^|]+ \| `waybill\/([a-z]+)`/gm)].map(([, subpath]) => subpath!);
    const adapters = ["src/stores", "src/brokers"]
      .flatMap((folder) => readdirSync(new URL(folder, root), { withFileTypes: true }))
      .flatMap((entry) => (entry.isDirectory() && entry.name !== "kit" ? [entry.name] : []));
    expect(rows.filter((row) => row !== "handles").sort()).toEqual(adapters.sort());
  });

  test("observing.md has exactly the path events that there are", () => {
    const [, part = ""] = /^<!-- path events -->$([\s\S]*?)^[A-Z]/m.exec(read("docs/observing.md")) ?? [];
    expect([...part.matchAll(/^\| `([a-z.]+)`/gm)].map(([, type]) => type)).toEqual(Object.keys(sentences));
  });

  test.each(pages)("%s names only metrics and path events that there are", (page) => {
    const metrics = [...counters, ...gauges, publishLatency].map(({ name }) => name);
    const named = [
      ...read(page).matchAll(/`(waybill_[a-z_]+_(?:total|seconds)|(?:relay|subscriber|destination|lanes|watch|housekeeping)\.[a-z]+)`/g),
    ]
      .map(([, name]) => name!)
      .filter((name) => !name.endsWith(".ts"));
    const others = ["relay.started", "relay.draining", "relay.drained", "relay.stopped", "relay.drain", "subscriber.drain"];
    expect(named.filter((name) => ![...metrics, ...Object.keys(sentences), ...others].includes(name))).toEqual([]);
  });

  test("pages that tell the window, which bounds duplicates, tell the default one", () => {
    const api = read("docs/api.md");
    const defaultOf = (option: string): string => new RegExp(`@default (\\d+) \\*/\\s+readonly ${option}\\?:`).exec(api)![1]!;
    const window = `${Number(defaultOf("batch")).toLocaleString("en")} × ${defaultOf("batchesInFlight")}`;
    const told = ["promises", "path", "deploying"].map(
      (page) => /[\d,]+ × \d+(?= (?:events )?by default)/.exec(read(`docs/${page}.md`))?.[0],
    );
    expect(told).toEqual([window, window, window]);
  });

  test.each(pages)("%s names only codes of the table", (page) => {
    const codes = [...read(page).matchAll(/`(?!WAYBILL_)([A-Z]+_[A-Z_]+)`/g)].map(([, code]) => code!);
    const variables = ["DATABASE_URL", "BROKER_URL"]; // of services, and of what waybill init writes
    expect(codes.filter((code) => !(code in errorTable) && !variables.includes(code))).toEqual([]);
  });
});

/** As GitHub makes them of headings. */
function anchorsOf(text: string): ReadonlySet<string> {
  const headings = [...text.matchAll(/^#+ (.+)$/gm)].map(([, heading]) => heading!.toLowerCase());
  return new Set(headings.map((heading) => heading.replaceAll(/[^\p{L}\p{N} _-]/gu, "").replaceAll(" ", "-")));
}

/** Every `waybill …` in a shell block, or in a container's CMD: the command's words, then its flags. */
function commandsOf(text: string): readonly string[][] {
  const shell = [...text.matchAll(/^```sh\n([\s\S]*?)^```$/gm)].flatMap(([, block]) => block!.trim().split("\n"));
  const images = [...text.matchAll(/^CMD (\[.*\])$/gm)].map(([, list]) => (JSON.parse(list!) as string[]).join(" "));
  return [...shell, ...images].flatMap((line) => {
    const [, command, rest] = /^\S*?\s?\S*waybill ((?:events |dead |tail )?\w+)(.*)$/.exec(line) ?? [];
    return command === undefined ? [] : [[command, ...(rest!.match(/--[a-z-]+/g) ?? [])]];
  });
}
