import { chanceOf, type Chance } from "./chance.ts";
import { dates, hostileJson, hostileText, ids, numbers, tell } from "./values.ts";

export type Dialect = "sqlite" | "postgres" | "mariadb";

/** Text goes as a parameter; `sql` is an expression. */
export type Value = { readonly text: string } | { readonly bytes: Buffer } | { readonly sql: string };

/** A row for the outbox, as whoever may insert can write it. */
export interface Row {
  /** Statements that the writer's session runs first. */
  readonly session: readonly string[];
  readonly columns: Readonly<Record<string, Value>>;
}

const usual: Readonly<Record<string, Value>> = {
  aggregate_type: { text: "Fuzz" },
  event_type: { text: "Fuzzed" },
  payload: { text: '{"n":1}' },
};

const text = (value: string): Value => ({ text: value });

/** What a writer may set on every store. */
const columns: Readonly<Record<string, (chance: Chance) => Value>> = {
  id: (chance) => text(chance.is(0.7) ? chance.pick(ids) : hostileText(chance)),
  aggregate_type: (chance) => text(hostileText(chance)),
  aggregate_id: (chance) => text(hostileText(chance)),
  event_type: (chance) => text(hostileText(chance)),
  event_version: (chance) => text(chance.pick(numbers)),
  payload: (chance) => (chance.is(0.1) ? { sql: "NULL" } : text(chance.is(0.5) ? hostileText(chance) : hostileJson(chance))),
  payload_bytes: (chance) => ({ bytes: Buffer.from(chance.noise(chance.pick([0, 1, 1_000, 300_000])), "latin1") }),
  content_type: (chance) => text(hostileText(chance)),
  headers: (chance) => text(hostileJson(chance)),
  idempotency_key: (chance) => text(hostileText(chance)),
  available_at: (chance) => text(chance.pick(dates)),
};

/** Nobody can keep whoever may write to a SQLite file from these. */
const sqliteColumns: Readonly<Record<string, (chance: Chance) => Value>> = {
  status: (chance) => text(chance.pick(["PENDING", "FAILED", "BLOCKED", "DEAD", "DISCARDED", "PUBLISHED", "pending", "", "x"])),
  retry_count: (chance) => ({ sql: chance.pick(["-1", "4", "2147483647", "9223372036854775807", "1e300", "'x'", "x'ff'", "NULL"]) }),
  next_attempt_at: (chance) => text(chance.pick(dates)),
  published_at: (chance) => text(chance.pick(dates)),
  created_at: (chance) => text(chance.pick(dates)),
  last_error: (chance) => text(hostileText(chance)),
  lane: (chance) => ({ sql: chance.pick(["0", "63", "64", "-1", "1.5", "'7'", "'x'"]) }),
};

/** Expressions that no parameter can carry. */
const expressions: Readonly<Record<Dialect, readonly string[]>> = {
  sqlite: [
    ...["CAST(x'ff' AS TEXT)", "CAST(x'610062' AS TEXT)", "CAST(x'eda080' AS TEXT)", "x'00'", "1", "1.5", "NULL", "'{}' || char(0)"],
    ...["CAST(x'7b7d00' AS TEXT)", 'jsonb(\'{"a":"b"}\')', "zeroblob(100)", "9e999", "-9e999"],
  ],
  postgres: ["NULL", "DEFAULT", "chr(1)", "repeat('x', 3000)", "E'\\\\x00'", "convert_from('\\xc3a9', 'UTF8')", "current_timestamp::text"],
  mariadb: [
    ...["NULL", "DEFAULT", "x'ff'", "x'00'", "_latin1 x'e9'", "_binary x'eda080'", "REPEAT('x', 3000)", "CHAR(0)", "0", "'0000-00-00'"],
    ...["CONCAT('{}', CHAR(0))", "CONCAT('{\"a\":\"b', CHAR(1), '\"}')"],
  ],
};

const sessions: Readonly<Record<Dialect, readonly string[]>> = {
  sqlite: ["PRAGMA ignore_check_constraints = ON"],
  postgres: ["SET TimeZone = 'Pacific/Kiritimati'", "SET DateStyle = 'German'", "SET waybill.moving = 'on'", "SET bytea_output = 'escape'"],
  mariadb: [
    ...["SET SESSION sql_mode = ''", "SET SESSION sql_mode = 'ANSI,NO_BACKSLASH_ESCAPES'", "SET SESSION check_constraint_checks = 0"],
    ...["SET timestamp = 1", "SET timestamp = 2147483647", "SET NAMES latin1", "SET SESSION time_zone = '+13:00'"],
    "SET SESSION sql_mode = 'EMPTY_STRING_IS_NULL'",
  ],
};

/** The rows of a seed. */
export const rowsOf = (seed: number, dialect: Dialect, count: number): readonly Row[] =>
  Array.from({ length: count }, (_, n) => rowOf(chanceOf(seed, `${dialect} row ${n}`), dialect, `f-${seed}-${n}`));

function rowOf(chance: Chance, dialect: Dialect, aggregateId: string): Row {
  const all = dialect === "sqlite" ? { ...columns, ...sqliteColumns } : columns;
  const row: Record<string, Value> = { ...usual, aggregate_id: text(aggregateId) };
  const names = Object.keys(all);
  for (let changes = chance.pick([1, 1, 2, 3]); changes > 0; changes--) {
    const name = chance.pick(names);
    row[name] = chance.is(0.15) ? { sql: chance.pick(expressions[dialect]) } : all[name]!(chance);
    if (name === "payload_bytes") delete row["payload"];
  }
  const session = chance.is(dialect === "mariadb" ? 0.4 : 0.15) ? [chance.pick(sessions[dialect])] : [];
  return { session, columns: row };
}

/** Smaller rows than this one: without its session, and with one column less out of the ordinary. */
export function* smaller({ session, columns: own }: Row, aggregateId: string): Generator<Row> {
  if (session.length > 0) yield { session: [], columns: own };
  const plain: Readonly<Record<string, Value>> = { ...usual, aggregate_id: text(aggregateId) };
  for (const name of Object.keys(own)) {
    const { [name]: gone, ...rest } = own;
    if (plain[name] === undefined) yield { session, columns: name === "payload_bytes" ? { ...rest, ...usual } : rest };
    else if (JSON.stringify(plain[name]) !== JSON.stringify(gone)) yield { session, columns: { ...own, [name]: plain[name] } };
  }
}

export function tellRow({ session, columns: own }: Row): string {
  const value = (given: Value): string =>
    "text" in given
      ? tell(given.text)
      : "sql" in given
        ? given.sql
        : `${given.bytes.length} bytes x'${given.bytes.toString("hex", 0, 16)}…'`;
  const changed = Object.entries(own).filter(([name, given]) => JSON.stringify(usual[name]) !== JSON.stringify(given));
  return `${session.map((each) => `${each}; `).join("")}${changed.map(([name, given]) => `${name} = ${value(given)}`).join(", ")}`;
}
