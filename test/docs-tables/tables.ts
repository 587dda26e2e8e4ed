import { readFileSync } from "node:fs";
import ts from "typescript";
import { adapters } from "../../src/cli/adapters.ts";
import type { Rule } from "../../src/contracts/doctor.ts";
import { consumerRules, inboxRules } from "../../src/doctor/consumer-rules.ts";
import { pathRules, wayRules } from "../../src/doctor/rules.ts";
import { inWords } from "../../src/core/in-words.ts";
import type { SettingTable } from "../../src/core/settings.ts";
import { keyOf } from "../../src/cli/settings.ts";
import { housekeepingSettings, relaySettings } from "../../src/relay/settings.ts";
import { logRules } from "../../src/stores/postgres/log/rules.ts";
import { counters, gauges, publishLatency } from "../../src/observe/metrics.ts";

/** The generated tables of the docs: by page, each with its name in the page's marks. */
export const tables: Readonly<Record<string, Readonly<Record<string, readonly string[]>>>> = {
  "docs/observing.md": {
    counters: table(
      ["counter", "labels", "counts"],
      counters.map(({ name, labels, help }) => [code(name), labels.map(code).join(", "), help]),
    ),
    gauges: table(
      ["gauge", "labels", "shows"],
      gauges.map(({ name, labels, help }) => [code(name), labels.map(code).join(", "), help]),
    ),
    histogram: table(["histogram", "shows"], [[code(publishLatency.name), publishLatency.help]]),
  },
  "docs/cli.md": {
    settings: settingsTable(
      { relaySettings, housekeepingSettings },
      readFileSync(new URL("../../src/relay/settings.ts", import.meta.url), "utf8"),
    ),
    URLs: table(
      ["", "flag", "URL", "also"],
      [
        ...adapters.stores.map((adapter) => [adapter, "--store"] as const),
        ...adapters.brokers.map((adapter) => [adapter, "--broker"] as const),
      ].map(
        ([
          {
            name,
            example,
            schemes: [, ...others],
          },
          flag,
        ]) => [name, code(flag), code(example), others.map((scheme) => code(`${scheme}:`)).join(", ")],
      ),
    ),
  },
  "docs/doctor.md": {
    ...Object.fromEntries([...adapters.stores, ...adapters.brokers].map(({ name, rules }) => [name, rulesTable(rules)])),
    "PostgreSQL's log": rulesTable(logRules),
    "store and broker together": rulesTable(pathRules),
    "a consumer": rulesTable([...inboxRules, ...consumerRules]),
    "on the way to a server": rulesTable(wayRules),
  },
};

/** The settings of a service that have a key, each with the comment of its row in the source. */
export function settingsTable(tables: Readonly<Record<string, SettingTable>>, source: string): readonly string[] {
  const comments = commentsOf(source);
  const rows = Object.entries(tables).flatMap(([table, settings]) =>
    Object.entries(settings).flatMap(([name, setting]) => {
      const [key, flag = ""] = [keyOf(name, setting), /^--\S+/.exec(setting.flag ?? "")?.[0]];
      const { text = "", usual = "" } = comments.get(`${table}.${name}`) ?? {};
      const shown = setting.kind === "time" && setting.default !== undefined ? inWords(setting.default as number) : usual;
      return key === null ? [] : [[flag === "" ? "" : code(flag), code(key), shown, text]];
    }),
  );
  return table(["flag", "key", "default", "meaning"], rows);
}

/** The comments of the rows of all tables in a source, by table and name, each apart from its default. */
export function commentsOf(source: string): ReadonlyMap<string, { readonly text: string; readonly usual: string }> {
  const tables = ts
    .createSourceFile("settings.ts", source, ts.ScriptTarget.Latest, true)
    .statements.filter(ts.isVariableStatement)
    .flatMap(({ declarationList }) => [...declarationList.declarations]);
  const rowsOf = (node: ts.Node | undefined): readonly ts.ObjectLiteralElementLike[] =>
    node === undefined || ts.isObjectLiteralExpression(node)
      ? (node?.properties ?? [])
      : ts.isAsExpression(node) || ts.isSatisfiesExpression(node)
        ? rowsOf(node.expression)
        : [];
  const found = tables.flatMap(({ name, initializer }) => rowsOf(initializer).map((row) => [name.getText(), row] as const));
  return new Map(
    found.map(([name, row]) => {
      const [doc] = ts.getJSDocCommentsAndTags(row).filter(ts.isJSDoc);
      const words = (comment: ts.JSDoc["comment"]): string => (ts.getTextOfJSDocComment(comment) ?? "").replaceAll(/\s+/g, " ");
      return [`${name}.${row.name!.getText()}`, { text: words(doc?.comment), usual: words(doc?.tags?.[0]?.comment) }];
    }),
  );
}

/** The page with each of its tables between `<!-- NAME: npm run docs writes this -->` and `<!-- up to here -->`. */
export function filledIn(page: string, parts: Readonly<Record<string, readonly string[]>>): string {
  return Object.entries(parts).reduce((text, [name, lines]) => {
    const [begin, end] = [`<!-- ${name}: npm run docs writes this -->\n`, "<!-- up to here -->"];
    const from = text.indexOf(begin) + begin.length;
    const to = text.indexOf(end, from);
    if (from < begin.length || to < 0) throw new Error(`the page has no mark ${begin.trim()}`);
    return `${text.slice(0, from)}\n${lines.join("\n")}\n\n${text.slice(to)}`;
  }, page);
}

function rulesTable(rules: readonly Rule<never>[]): readonly string[] {
  const row = ({ setting, badWhen, breaks, remedy }: Rule<never>): readonly string[] => [
    code(setting),
    badWhen,
    [...breaks].join(" "),
    remedy,
  ];
  return table(["setting", "bad when", "breaks", "remedy"], rules.map(row));
}

function table(head: readonly string[], rows: readonly (readonly string[])[]): readonly string[] {
  const line = (cells: readonly string[]): string =>
    `| ${cells.map((cell) => cell.replaceAll("|", "\\|")).join(" | ")} |`.replaceAll("|  |", "| |");
  return [line(head), `|${"---|".repeat(head.length)}`, ...rows.map(line)];
}

function code(text: string): string {
  return `\`${text}\``;
}
