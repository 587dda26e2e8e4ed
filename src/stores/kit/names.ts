import { show, WaybillError } from "../../core/errors.ts";
import { checkOptions } from "../../core/options.ts";

/** The tables that are named with the prefix. */
export const tables = [
  ...(["keys", "relays", "lanes", "windows", "suspects", "holds", "destinations"] as const),
  ...(["audit", "attempts", "seats", "letters", "meta"] as const),
];

export type TableName = (typeof tables)[number] | "outbox" | "inbox" | "events";

interface Given {
  readonly outbox?: string;
  readonly inbox?: string;
  readonly events?: string;
  readonly prefix?: string;
}

/** Which names a server accepts. */
export interface NameRules {
  isName(name: string): boolean;
  /** What a name is: `a name`. */
  readonly what: string;
  /** Says why a name is too long. */
  tooLong(name: string): string | null;
  /** Gives one text for all names that the server treats as the same. */
  same?(name: string): string;
  /** Names derived from the given ones, besides those of the tables. */
  longest(given: Required<Given>): readonly string[];
}

/** The names of the tables and of `others`. Refuses a name that the server would cut, or take for another. */
export function plainNames(
  schema: string | undefined,
  given: Given,
  others: readonly string[],
  { isName, what, tooLong, same = (name) => name, longest }: NameRules,
): Required<Given> & { readonly plain: Readonly<Record<string, string>> } {
  checkOptions("names", given, ["outbox", "inbox", "events", "prefix"]);
  const { outbox = "outbox", inbox = "inbox", events = "outbox_events", prefix = "waybill_" } = given;
  const named = { outbox, inbox, events, prefix };
  for (const [of, name] of Object.entries({ ...(schema === undefined ? {} : { schema }), ...named }) as [string, unknown][])
    if (typeof name !== "string" || name === "" || name.includes("\0") || !name.isWellFormed() || !isName(name))
      throw new WaybillError("INVALID_OPTION", `names: ${of} must be ${what}, not ${show(name)}`);
  const own = Object.fromEntries([...tables, ...others].map((name) => [name, `${prefix}${name}`]));
  const plain = { ...own, outbox, inbox, events };
  const all = Object.values(plain);
  for (const name of [...(schema === undefined ? [] : [schema]), ...all, ...longest(named)]) {
    const why = tooLong(name);
    if (why !== null) throw new WaybillError("INVALID_OPTION", `the name ${show(name)} is longer than the ${why}: choose a shorter one`);
  }
  const twice = all.find((name, at) => all.findIndex((other) => same(other) === same(name)) !== at);
  if (twice !== undefined) throw new WaybillError("INVALID_OPTION", `the name ${show(twice)} is given to two things`);
  return { ...named, plain };
}
