import { inWords } from "../core/in-words.ts";
import type { OptionsOf, SettingTable, ValueOf } from "../core/settings.ts";
import { flag, type Flag } from "./parse.ts";
import { keyOf, texts } from "./settings.ts";

type NameOf<S> = S extends { readonly flag: `--${infer Name} ${string}` } ? Name : never;
export type FlagsOf<T extends SettingTable> = { readonly [K in keyof T as NameOf<T[K]>]: Flag<ValueOf<T[K]> | undefined> };

/** The name of the flag, the word for its value, and its help. */
const partsOf = ({ flag = "" }: { readonly flag?: string }): readonly string[] => /^--(\S+) (\S+): (.*)$/.exec(flag)?.slice(1) ?? [];

/** The flags of those settings that have one. */
export function flagsOf<T extends SettingTable>(table: T): FlagsOf<T> {
  const flags = Object.values(table).flatMap((setting) => {
    const { kind, default: usual } = setting;
    const [name, shown, help] = partsOf(setting);
    if (name === undefined || kind === "retry" || kind === "waits") return [];
    const told =
      usual === undefined ? help! : `${help} (default: ${kind === "time" ? inWords(usual as number) : (usual as string | number)})`;
    return [[name, flag.value(shown!, told, texts[kind](setting))]];
  });
  return Object.fromEntries(flags) as FlagsOf<T>;
}

/** What flags and the file say about these settings. A flag wins. */
export function chosen<T extends SettingTable>(table: T, values: object, config: object): OptionsOf<T> {
  const [ofFlags, ofFile] = [new Map<string, unknown>(Object.entries(values)), new Map<string, unknown>(Object.entries(config))];
  const options = Object.entries(table).map(([name, setting]) => [
    name,
    ofFlags.get(partsOf(setting)[0] ?? "") ?? ofFile.get(keyOf(name, setting) ?? ""),
  ]);
  return Object.fromEntries(options.filter(([, value]) => value !== undefined)) as OptionsOf<T>;
}
