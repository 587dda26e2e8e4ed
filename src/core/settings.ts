import type { Envelope } from "./event.ts";
import { checkOptions, positive, whole } from "./options.ts";
import type { RetryOptions } from "./retry.ts";

/** What a value of each kind of setting is in code. The command line adds how each is written in flags and in the configuration file. */
export interface Kinds {
  readonly whole: number;
  readonly time: number;
  readonly timeOrFalse: number | false;
  readonly text: string;
  readonly choice: string;
  readonly names: readonly string[];
  readonly lanes: readonly number[];
  readonly route: string | ((event: Envelope) => string);
  readonly retry: RetryOptions;
  readonly waits: { readonly first: number; readonly last: number };
}

/** One row of a service's table. The comment above it is its documentation, in editors and in the docs. */
export interface Setting {
  readonly kind: keyof Kinds;
  /** Without one, the service finds the value itself, or needs none. */
  readonly default?: Kinds[keyof Kinds];
  /** The values of a choice. */
  readonly of?: readonly string[];
  /** The limits in flags and in the configuration file. Code may go beyond them. @default 1, and a day for times */
  readonly least?: number;
  readonly most?: number;
  /** Its key in the configuration file, where this is not its name. Null: it has none. */
  readonly key?: string | null;
  /** Its flag, a word for the value, and its line in `--help`, to which the default is added. */
  readonly flag?: `--${string} ${string}: ${string}`;
}

export type SettingTable = Readonly<Record<string, Setting>>;

export type ValueOf<S extends Setting> = S extends { readonly of: readonly (infer T)[] } ? T : Kinds[S["kind"]];

/** The settings as options of a service. TypeScript keeps the comments of the rows for the members, because each has its row's name. */
export type OptionsOf<T extends SettingTable> = { readonly [K in keyof T]?: ValueOf<T[K]> };

/** Checked, and with the defaults of those that were left out. */
export type WithDefaults<T extends SettingTable> = {
  readonly [K in keyof T]: ValueOf<T[K]> | ("default" extends keyof T[K] ? never : undefined);
};

/** The other kinds are checked where they are used, which can say more about a wrong value. */
const checks: Partial<Readonly<Record<keyof Kinds, (name: string, value: never) => unknown>>> = {
  whole,
  time: positive,
  timeOrFalse: (name, value: number | false) => (value === false ? false : positive(name, value)),
};

/**
 * The settings among the options of a service, checked, with their defaults. `others` names the options that are no settings: the type check
 * fails when one is missing. An error shows `prefix` before the name of a wrong setting.
 */
export function settle<T extends SettingTable, O extends OptionsOf<T>>(
  where: string,
  table: T,
  options: O,
  others: Readonly<Record<Exclude<keyof O, keyof T>, true>>,
  prefix = "",
): WithDefaults<T> {
  checkOptions(where, options, [...Object.keys(others), ...Object.keys(table)]);
  const settled = Object.entries(table).map(([name, row]) => {
    const value = options[name] ?? row.default;
    const check = checks[row.kind];
    return [name, value === undefined || check === undefined ? value : check(prefix + name, value as never)];
  });
  return Object.fromEntries(settled) as WithDefaults<T>;
}
