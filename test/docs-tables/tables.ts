import { adapters } from "../../src/cli/adapters.ts";
import type { Rule } from "../../src/contracts/doctor.ts";
import { consumerRules, inboxRules } from "../../src/doctor/consumer-rules.ts";
import { pathRules, wayRules } from "../../src/doctor/rules.ts";
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
    "store and broker together": rulesTable(pathRules),
    "a consumer": rulesTable([...inboxRules, ...consumerRules]),
    "on the way to a server": rulesTable(wayRules),
  },
};

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
