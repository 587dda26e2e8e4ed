import { LANES } from "../core/lane.ts";
import { checkOptions } from "../core/options.ts";
import type { RetryOptions } from "../core/retry.ts";
import type { Kinds, Setting, SettingTable, ValueOf } from "../core/settings.ts";
import { duration } from "./duration.ts";
import { asIs, laneNumbers, names, oneOf, whole, type Read, type Refuse } from "./read.ts";

const day = 86_400_000;

type Kind = keyof Kinds;
/** Only the configuration file can hold values of these kinds. */
type Structured = "retry" | "waits";

/** How the text of a flag, or of the configuration file, is read. */
export const texts: Readonly<Record<Exclude<Kind, Structured>, (setting: Setting) => Read<unknown>>> = {
  whole: ({ least = 1, most = Number.MAX_SAFE_INTEGER }) => whole(least, most),
  // Longer waits would overflow Node's timers, which then fire at once.
  time: ({ least = 1, most = day }) => duration(least, most),
  timeOrFalse: ({ least = 1, most = day }) => duration(least, most),
  choice: ({ of = [] }) => oneOf(of),
  text: () => asIs,
  names: () => names,
  lanes: () => laneNumbers(LANES),
  route: () => asIs,
};

type KeyOf<K, S> = S extends { readonly key: infer Key } ? (Key extends string ? Key : never) : K;

/** What the configuration file says about these settings, read. */
export type Configured<T extends SettingTable> = { readonly [K in keyof T as KeyOf<K, T[K]>]?: ValueOf<T[K]> };

/** The key of a setting in the configuration file. Null: it has none. */
export const keyOf = (name: string, { key = name }: Setting): string | null => key;

/** Reads a setting's value in the configuration file. A text is refused as the flag refuses it. */
export function fromFile(setting: Setting, value: unknown, where: string, refuse: Refuse): unknown {
  const { kind } = setting;
  if (kind === "retry") return retryIn(value, where, refuse);
  if (kind === "waits") return waitsIn(value, where, refuse);
  return kind === "route" && typeof value === "function" ? value : texts[kind](setting)(asText(kind, value, refuse), refuse);
}

/** Numbers and lists may be written as such. They are then parsed like the text of a flag. A time needs its unit. */
function asText(kind: Kind, value: unknown, refuse: Refuse): string {
  if (typeof value === "string") return value;
  if (kind === "whole" && typeof value === "number") return String(value);
  if ((kind === "names" || kind === "lanes") && Array.isArray(value))
    return value.length === 0 ? refuse("must not be empty: leave the key out") : value.join(",");
  return refuse(`must be ${kind === "whole" ? "a number" : "text"}, not ${value === null ? "null" : typeof value}`);
}

function retryIn(value: unknown, where: string, refuse: Refuse): RetryOptions {
  if (typeof value !== "object" || value === null) return refuse("must be an object with delaysMs and jitter");
  checkOptions(`${where}: retry`, value, ["delaysMs", "jitter"] satisfies (keyof RetryOptions)[]);
  const { delaysMs, jitter } = value as { delaysMs?: unknown; jitter?: unknown };
  if (delaysMs !== undefined && !(Array.isArray(delaysMs) && delaysMs.every((ms) => typeof ms === "number" && ms >= 0 && ms <= 30 * day))) {
    return refuse("needs delaysMs as a list of milliseconds, such as [1000, 5000, 30000, 120000]");
  }
  if (jitter !== undefined && !(typeof jitter === "number" && jitter >= 0 && jitter < 1)) return refuse("needs jitter from 0 to below 1");
  return value;
}

function waitsIn(value: unknown, where: string, refuse: Refuse): Kinds["waits"] {
  if (typeof value !== "object" || value === null) return refuse("must be an object with first and last");
  checkOptions(`${where}: probeMs`, value, ["first", "last"]);
  const { first, last } = value as Readonly<Record<string, unknown>>;
  const isWait = (ms: unknown): ms is number => typeof ms === "number" && ms > 0 && ms <= day;
  return isWait(first) && isWait(last) && first <= last
    ? { first, last }
    : refuse("needs first and last in milliseconds, such as { first: 1000, last: 30000 }");
}
