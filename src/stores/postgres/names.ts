import { show, WaybillError } from "../../core/errors.ts";
import { checkOptions } from "../../core/options.ts";

export interface PostgresNames {
  /** @default "outbox" */
  readonly outbox?: string;
  /** @default "inbox" */
  readonly inbox?: string;
  /** The view of every event with its derived state. @default "outbox_events" */
  readonly events?: string;
  /** Of all other tables and functions. @default "waybill_" */
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
const routines = ["add", "lane", "next_seq", "use_key", "moves", "seq", "add_partitions", "drop_partition"] as const;

/** Every name of the schema as it stands in SQL: qualified and quoted. */
export type Names = Readonly<
  Record<(typeof tables)[number] | (typeof routines)[number] | "schema" | "outbox" | "inbox" | "events", string>
> & {
  /** An index of the outbox or of one of our tables; not qualified, as CREATE INDEX wants it. */
  index(of: "outbox" | "inbox" | (typeof tables)[number], what: string): string;
  /** A partition of the outbox. */
  partition(what: string): string;
  /** The name of a relation without schema and quotes. */
  plain(of: "outbox" | "inbox"): string;
};

/** PostgreSQL cuts a longer name off without a word, and two names would be one. */
const maxBytes = 63;

export function namesOf(schema: string, given: PostgresNames = {}): Names {
  checkOptions("names", given, ["outbox", "inbox", "events", "prefix"]);
  const { outbox = "outbox", inbox = "inbox", events = "outbox_events", prefix = "waybill_" } = given;
  const own = Object.fromEntries([...tables, ...routines].map((name) => [name, `${prefix}${name}`])) as Record<string, string>;
  const plain = { ...own, outbox, inbox, events } as Record<string, string>;
  const all = Object.values(plain);
  for (const [what, name] of [
    ["schema", schema],
    ["outbox", outbox],
    ["inbox", inbox],
    ["events", events],
    ["prefix", prefix],
  ] as const)
    check(what, name);
  for (const name of [schema, ...all, `${outbox}_published`, `${inbox}_age`, `${prefix}holds_destination`]) {
    if (Buffer.byteLength(name) > maxBytes)
      throw new WaybillError(
        "INVALID_OPTION",
        `the name ${show(name)} is longer than the ${maxBytes} bytes that PostgreSQL keeps: choose a shorter one`,
      );
  }
  const twice = all.find((name, at) => all.indexOf(name) !== at);
  if (twice !== undefined) throw new WaybillError("INVALID_OPTION", `the name ${show(twice)} is given to two things`);
  const quoted = Object.fromEntries(Object.entries(plain).map(([key, name]) => [key, `${quote(schema)}.${quote(name)}`]));
  return {
    ...(quoted as unknown as Names),
    schema: quote(schema),
    partition: (what) => `${quote(schema)}.${quote(`${outbox}_${what}`)}`,
    index: (of, what) => quote(`${plain[of]!}_${what}`),
    plain: (of) => plain[of]!,
  };
}

function check(what: string, name: unknown): void {
  if (typeof name !== "string" || name === "" || name.includes("\0") || name.includes("$waybill$") || !name.isWellFormed())
    throw new WaybillError("INVALID_OPTION", `names: ${what} must be a name, not ${show(name)}`);
}

export const quote = (name: string): string => `"${name.replaceAll('"', '""')}"`;
/** A string constant, for the few places where PostgreSQL takes no parameter. */
export const literal = (text: string): string => `'${text.replaceAll("'", "''")}'`;
