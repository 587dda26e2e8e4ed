import { plainNames, type NameRules, type TableName } from "../kit/names.ts";

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

/** Every name of the schema as it stands in SQL: quoted, and qualified where a schema is given. */
export type Names = Readonly<Record<TableName | "use_key" | "guard", string>> & {
  /** The database that was named; null for that of the connection. */
  readonly schema: string | null;
  readonly quotedSchema: string;
  /** The same, qualified with this database where no schema was named. */
  readonly inside: (database: string) => Names;
  /** Quoted only; constraints are not qualified. */
  readonly constraint: (what: string) => string;
  /** What the server says of a broken constraint, as text in SQL. */
  readonly failed: (what: string) => string;
  /** Unquoted, for messages and look-ups. */
  readonly plain: (of: TableName | "use_key" | "guard") => string;
};

const maxCharacters = 64;

const rules: NameRules = {
  // A question mark would be taken for a parameter by clients; the rest no server accepts.
  isName: (name) => !/[?\u{10000}-\u{10ffff}]| $/u.test(name),
  what: 'a name without NUL, "?", a space at its end or characters beyond U+FFFF',
  tooLong: (name) => (name.length > maxCharacters ? `${maxCharacters} characters that MySQL and MariaDB take` : null),
  // A server may be set up to compare table names without regard to case.
  same: (name) => name.toLowerCase(),
  longest: ({ prefix }) => [`${prefix}event_version`],
};

export function namesOf(schema: string | undefined, given: MysqlNames = {}): Names {
  const { plain, prefix } = plainNames(schema, given, ["use_key", "guard"], rules);
  const constraint = (what: string): string => quote(`${prefix}${what}`);
  const full = (name: string): string => (schema === undefined ? quote(name) : `${quote(schema)}.${quote(name)}`);
  return {
    ...(Object.fromEntries(Object.entries(plain).map(([key, name]) => [key, full(name)])) as unknown as Names),
    schema: schema ?? null,
    quotedSchema: quote(schema ?? ""),
    inside: (database) => namesOf(schema ?? database, given),
    constraint,
    failed: (what) => `'CONSTRAINT ${constraint(what).replaceAll("\\", "\\\\").replaceAll("'", "''")} failed'`,
    plain: (of) => plain[of]!,
  };
}

export const quote = (name: string): string => `\`${name.replaceAll("`", "``")}\``;
