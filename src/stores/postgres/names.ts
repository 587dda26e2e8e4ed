import { plainNames, type NameRules, type TableName } from "../kit/names.ts";

export interface PostgresNames {
  /** @default "outbox" */
  readonly outbox?: string;
  /** @default "inbox" */
  readonly inbox?: string;
  /** The view of every event with its derived state. @default "outbox_events" */
  readonly events?: string;
  /** Prefix of all other tables and functions. @default "waybill_" */
  readonly prefix?: string;
}

const others = [
  "add",
  "lane",
  "use_key",
  "moves",
  "check",
  "claim",
  "settle",
  "mark",
  "finish",
  "seq",
  "tail",
  "tail_marks",
  "add_partitions",
  "drop_partition",
] as const;

/** Every name of the schema as it stands in SQL: qualified and quoted. */
export type Names = Readonly<Record<TableName | (typeof others)[number] | "schema", string>> & {
  /** An index of the outbox or of one of our tables; not qualified, as CREATE INDEX wants it. */
  index(of: TableName, what: string): string;
  /** A partition of the outbox. */
  partition(what: string): string;
  /** The name of a relation without schema and quotes. */
  plain(of: "outbox" | "inbox"): string;
};

/** PostgreSQL silently truncates longer names, so two names could become one. */
const maxBytes = 63;

const rules: NameRules = {
  isName: (name) => !name.includes("$waybill$"),
  what: "a name",
  tooLong: (name) => (Buffer.byteLength(name) > maxBytes ? `${maxBytes} bytes that PostgreSQL keeps` : null),
  longest: ({ outbox, inbox, prefix }) => [`${outbox}_published`, `${outbox}_detour_of`, `${inbox}_age`, `${prefix}holds_destination`],
};

export function namesOf(schema: string, given: PostgresNames = {}): Names {
  const { plain, outbox } = plainNames(schema, given, others, rules);
  const quoted = Object.fromEntries(Object.entries(plain).map(([key, name]) => [key, `${quote(schema)}.${quote(name)}`]));
  return {
    ...(quoted as unknown as Names),
    schema: quote(schema),
    partition: (what) => `${quote(schema)}.${quote(`${outbox}_${what}`)}`,
    index: (of, what) => quote(`${plain[of]!}_${what}`),
    plain: (of) => plain[of]!,
  };
}

const quote = (name: string): string => `"${name.replaceAll('"', '""')}"`;
/**
 * A SQL literal, for places where PostgreSQL takes no parameter, or where a parameter would cost a round trip. Correct under any
 * `standard_conforming_strings`. A raw NUL would end the statement, so it is escaped, and the server refuses the escape.
 */
export function literal(value: string | number): string {
  if (typeof value === "number") return String(value);
  const text = value.replaceAll("'", "''");
  return /[\\\0]/.test(text) ? `E'${text.replaceAll("\\", "\\\\").replaceAll("\0", "\\000")}'` : `'${text}'`;
}
