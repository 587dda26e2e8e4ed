import type { Adapter } from "../contracts/adapter.ts";
import type { Adapters } from "./adapters.ts";
import { commonFlags, type Command, type Flags } from "./parse.ts";

export function programHelp(commands: readonly Command[], { stores, brokers }: Adapters): readonly string[] {
  return [
    "waybill: events from your database to your broker, none lost, none invented, in order.",
    "",
    "usage: waybill COMMAND [flags]",
    "",
    ...columns(commands.map(({ name, summary }) => [name, firstSentence(summary)])),
    "",
    "URLs:",
    ...columns([...stores.map(urlRow("--store")), ...brokers.map(urlRow("--broker"))]),
    "They may stand in files (--store-file, --broker-file), in WAYBILL_STORE and WAYBILL_BROKER, or in waybill.config.mjs or .json instead.",
    "Every command has --help and --json. Exit codes: 0 done, 1 failed, 2 wrong use.",
    "",
    "example:",
    "  waybill migrate --store sqlite:./app.db",
    "  waybill relay --store sqlite:./app.db --broker embedded:./broker.db",
  ];
}

export function groupHelp(group: string, commands: readonly Command[]): readonly string[] {
  const [example] = commands.flatMap(({ examples }) => examples);
  return [
    `usage: waybill ${group} ${commands.map(({ name }) => name.split(" ")[1]).join("|")} [flags]`,
    "",
    ...columns(commands.map(({ name, summary }) => [name, firstSentence(summary)])),
    "",
    `Each has --help. For example:`,
    `  ${example ?? ""}`,
  ];
}

export function commandHelp({ name, summary, words, flags, examples }: Command): readonly string[] {
  const all: Flags = { ...flags, ...commonFlags };
  return [
    `usage: waybill ${name}${words === undefined ? "" : ` ${words.shown}`} [flags]`,
    "",
    summary,
    "",
    ...columns(Object.entries(all).map(([key, { shown, help }]) => [`--${key}${shown === "" ? "" : ` ${shown}`}`, help])),
    "",
    examples.length > 1 ? "examples:" : "example:",
    ...examples.map((example) => `  ${example}`),
  ];
}

const urlRow =
  (flag: string) =>
  ({ name, schemes: [, ...others], example }: Adapter): readonly [string, string] => [
    `${flag} ${example}`,
    others.length === 0 ? name : `${name}; also ${others.map((scheme) => `${scheme}:`).join(", ")}`,
  ];

const firstSentence = (text: string): string => text.split(/(?<=[.;]) /)[0]!.replace(/;$/, ".");

function columns(rows: readonly (readonly [string, string])[]): string[] {
  const width = Math.max(...rows.map(([left]) => left.length));
  return rows.map(([left, right]) => `  ${left.padEnd(width)}  ${right}`);
}
