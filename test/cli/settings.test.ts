import { readFileSync } from "node:fs";
import { describe, expect, expectTypeOf, test } from "vitest";
import { chosenOptions, relay } from "../../src/cli/commands/relay.ts";
import { configKeys, readConfig } from "../../src/cli/config.ts";
import { chosen, flagsOf } from "../../src/cli/flags.ts";
import { commandHelp } from "../../src/cli/help.ts";
import { command, parse } from "../../src/cli/parse.ts";
import { keyOf } from "../../src/cli/settings.ts";
import type { ConfigFile } from "../../src/config-file.ts";
import { settle, type OptionsOf, type SettingTable } from "../../src/core/settings.ts";
import { housekeepingSettings, relaySettings } from "../../src/relay/settings.ts";
import { subscriberSettings } from "../../src/subscriber/settings.ts";
import { commentsOf, settingsTable } from "../docs-tables/tables.ts";

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

describe("one row of a table", () => {
  const planted = {
    /** How long the relay waits for a parrot. @default 5000 */
    parrotMs: { kind: "time", key: "parrot", least: 1_000, default: 5_000, flag: "--parrot TIME: how long to wait for a parrot" },
  } as const satisfies SettingTable;
  const service = (options: OptionsOf<typeof planted>) => settle("createRelay", planted, options, {});
  const sample = command({
    name: "sample",
    summary: "A command.",
    flags: flagsOf(planted),
    examples: ["sample"],
    run: async () => undefined,
  });
  const tables = [relaySettings, planted];

  test("is an option, typed, checked and with its default", () => {
    expectTypeOf<OptionsOf<typeof planted>>().toEqualTypeOf<{ readonly parrotMs?: number }>();
    expectTypeOf(service({}).parrotMs).toEqualTypeOf<number>();
    expect([service({}), service({ parrotMs: 7 })]).toEqual([{ parrotMs: 5_000 }, { parrotMs: 7 }]);
    expect(() => service({ parrotMs: 0 })).toThrow("parrotMs must be a number above 0, not 0");
    expect(() => service({ parotMs: 1 } as object)).toThrow('createRelay has no option "parotMs": did you mean parrotMs?');
  });

  test("is a flag, with its help, its default and its limits", () => {
    expect(commandHelp(sample)).toContainEqual(expect.stringMatching(/^ +--parrot TIME +how long to wait for a parrot \(default: 5s\)$/));
    expect(chosen(planted, parse(sample, ["--parrot", "2s"]).values, {})).toEqual({ parrotMs: 2_000 });
    expect(() => parse(sample, ["--parrot", "5ms"])).toThrow("--parrot must be from 1s to 1d, not 5ms");
  });

  test("is a key of the configuration file, and a flag wins over it", () => {
    const config = readConfig({ parrot: "3s" }, "x.mjs", tables);
    expect(chosen(planted, {}, config)).toEqual({ parrotMs: 3_000 });
    expect(chosen(planted, parse(sample, ["--parrot", "2s"]).values, config)).toEqual({ parrotMs: 2_000 });
    expect(() => readConfig({ parrot: 3 }, "x.mjs", tables)).toThrow("x.mjs: parrot must be text, not number");
    expect(() => readConfig({ parot: "3s" }, "x.mjs", tables)).toThrow("did you mean parrot?");
  });

  test("is a line of the docs' table", () => {
    const source = `export const planted = {\n /** How long the relay\n * waits. @default 5000 */\n parrotMs: { kind: "time" } } as const;`;
    expect(settingsTable({ planted }, source).at(-1)).toBe("| `--parrot` | `parrot` | 5s | How long the relay waits. |");
  });
});

describe.each<readonly [string, Readonly<Record<string, SettingTable>>]>([
  ["relay", { relaySettings, housekeepingSettings }],
  ["subscriber", { subscriberSettings }],
])("the settings of the %s", (room, tables) => {
  const comments = commentsOf(read(`src/${room}/settings.ts`));
  const rows = Object.entries(tables).flatMap(([table, settings]) =>
    Object.entries(settings).map(([name, row]) => ({ name, row, comment: comments.get(`${table}.${name}`) })),
  );

  test.each(rows)("$name: its comment tells its default", ({ row, comment }) => {
    expect(comment?.text).not.toBe("");
    if (typeof row.default === "object") return;
    const usual = comment!.usual.replace(/ \(.*\)$/, "");
    const [, amount, unit] = /^(\d+) (hour|day)s?$/.exec(usual) ?? [];
    const told = unit === undefined ? usual : String(Number(amount) * { hour: 3_600_000, day: 86_400_000 }[unit]!);
    if (row.default !== undefined) expect(told).toBe(JSON.stringify(row.default));
  });
});

test("an editor shows the comment of every setting, as an option and as a key", () => {
  const page = read("docs/api.md"); // what the types say, as an editor shows them
  const uncommented = (name: string, members: readonly string[]): readonly string[] => {
    const [, text = ""] = new RegExp(`^interface ${name}\\b[^\\n]*\\{\\n([^}][\\s\\S]*?)^\\}`, "m").exec(page) ?? [];
    return members.filter((member) => !new RegExp(`\\*/\\n  readonly ${member}\\?:`).test(text)).map((member) => `${name}.${member}`);
  };
  const keys = [relaySettings, housekeepingSettings].flatMap((table: SettingTable) =>
    Object.entries(table).flatMap(([name, row]) => keyOf(name, row) ?? []),
  );
  expect([
    ...uncommented("RelayOptions", Object.keys(relaySettings)),
    ...uncommented("HousekeepingOptions", Object.keys(housekeepingSettings)),
    ...uncommented("SubscriberOptions", Object.keys(subscriberSettings)),
    ...uncommented("ConfigFile", keys),
  ]).toEqual([]);
});

test("the type of the configuration file has the keys of the tables, and they reach the relay", () => {
  expectTypeOf<Pick<ConfigFile, "batch" | "lease" | "own" | "skip" | "keyRetention">>().toEqualTypeOf<{
    readonly batch?: number;
    readonly lease?: string;
    readonly own?: string | readonly number[];
    readonly skip?: string | readonly string[];
    readonly keyRetention?: string;
  }>();
  // @ts-expect-error a time needs its unit
  const wrong: ConfigFile = { lease: 10 };
  expect(() => readConfig(wrong, "x.mjs")).toThrow("lease must be text");
  expect(configKeys()).toContain("keyRetention");
  const { values } = parse(relay, ["--poll-interval", "2s"]);
  expect(chosenOptions({ config: readConfig({ keyRetention: "2d" }, "x.mjs") }, values)).toEqual({
    pollIntervalMs: 2_000,
    housekeeping: { keyRetentionMs: 2 * 86_400_000 },
  });
});
