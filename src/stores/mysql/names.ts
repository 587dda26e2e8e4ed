import { show, WaybillError } from "../../core/errors.ts";
import { checkOptions } from "../../core/options.ts";

export interface MysqlNames {
  /** @default "outbox" */
  readonly outbox?: string;
  /** @default "inbox" */
  readonly inbox?: string;
  /** The view of every event with its derived state. @default "outbox_events" */
  readonly events?: string;
  /** Of all other tables. @default "waybill_" */
  readonly prefix?: string;
}

const tables = [
  "keys",
  "relays",
  "lanes",
  "windows",
  "suspects",
  "holds",
  "destinations",
  "audit",
  "attempts",
  "seats",
  "letters",
  "meta",
] as const;

/** Every name of the schema as it stands in SQL: quoted, and qualified where a schema is given. */
export type Names = Readonly<Record<(typeof tables)[number] | "outbox" | "inbox" | "events" | "trigger" | "guard", string>> & {
  /** The database that was named; null for that of the connection. */
  readonly schema: string | null;
  readonly quotedSchema: string;
  /** The same, qualified with this database where no schema was named. */
  readonly inside: (database: string) => Names;
  /** Quoted only; constraints are not qualified. */
  readonly constraint: (what: string) => string;
  /** As it is, for messages and look-ups. */
  readonly plain: (of: "outbox" | "meta" | "trigger" | "guard") => string;
};

const maxCharacters = 64;

export function namesOf(schema: string | undefined, given: MysqlNames = {}): Names {
  checkOptions("names", given, ["outbox", "inbox", "events", "prefix"]);
  const { outbox = "outbox", inbox = "inbox", events = "outbox_events", prefix = "waybill_" } = given;
  for (const [what, name] of Object.entries({ ...(schema === undefined ? {} : { schema }), outbox, inbox, events, prefix }))
    check(what, name);
  const plain: Record<string, string> = {
    ...Object.fromEntries(tables.map((name) => [name, `${prefix}${name}`])),
    outbox,
    inbox,
    events,
    trigger: `${prefix}use_key`,
    guard: `${prefix}guard`,
  };
  const all = Object.values(plain);
  for (const name of [...all, `${prefix}event_version`, ...(schema === undefined ? [] : [schema])]) {
    if (name.length > maxCharacters)
      throw new WaybillError(
        "INVALID_OPTION",
        `the name ${show(name)} is longer than the ${maxCharacters} characters that MySQL and MariaDB take: choose a shorter one`,
      );
  }
  // Servers may be set up to know tables by their letters alone, whether large or small.
  const twice = all.find((name, at) => all.findIndex((other) => other.toLowerCase() === name.toLowerCase()) !== at);
  if (twice !== undefined) throw new WaybillError("INVALID_OPTION", `the name ${show(twice)} is given to two things`);
  const full = (name: string): string => (schema === undefined ? quote(name) : `${quote(schema)}.${quote(name)}`);
  return {
    ...(Object.fromEntries(Object.entries(plain).map(([key, name]) => [key, full(name)])) as unknown as Names),
    schema: schema ?? null,
    quotedSchema: quote(schema ?? ""),
    inside: (database) => namesOf(schema ?? database, given),
    constraint: (what) => quote(`${prefix}${what}`),
    plain: (of) => plain[of]!,
  };
}

/** A question mark would be taken for a parameter by clients; the rest no server accepts. */
function check(what: string, name: unknown): void {
  if (typeof name !== "string" || name === "" || !name.isWellFormed() || /[\0?\u{10000}-\u{10ffff}]| $/u.test(name))
    throw new WaybillError(
      "INVALID_OPTION",
      `names: ${what} must be a name without NUL, "?", a space at its end or characters beyond U+FFFF, not ${show(name)}`,
    );
}

export const quote = (name: string): string => `\`${name.replaceAll("`", "``")}\``;
