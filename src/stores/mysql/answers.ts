import type { Clock } from "../../core/clock.ts";
import type { TablesFound } from "../../core/tables.ts";
import { isOurs, sightClock, unlessDenied, type ClockSighting, type StoredThings, type Thing } from "../kit/doctor.ts";
import type { Connection, Run } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import { layoutOf } from "./layout.ts";
import type { Names } from "./names.ts";
import { dateOf, numberOf, textOf, textOrNull } from "./rows.ts";
import { createSchema, fingerprints, tablesIn } from "./schema.ts";

const asked = [
  "innodb_flush_log_at_trx_commit",
  "innodb_doublewrite",
  "log_bin",
  "sync_binlog",
  "default_storage_engine",
  "transaction_isolation",
  "tx_isolation",
  "read_only",
] as const;

/** What the server said. */
export interface Answers {
  readonly version: string;
  readonly mariadb: boolean;
  /** Some servers do not have all of them. */
  readonly variables: Readonly<Partial<Record<(typeof asked)[number], string>>>;
  /** Whether this user may see the transactions of others. */
  readonly sees: boolean;
  readonly user: string;
  readonly clock: ClockSighting;
  /** Null where this user may not look. */
  readonly schema: TablesFound | null;
  /** Null where the tables are not those of this version. */
  readonly tables: TableAnswers | null;
}

/** An index is called `table.index`. */
export interface TableAnswers extends StoredThings {
  /** A user without the right TRIGGER sees none. */
  readonly seesTriggers: boolean;
  /** Null where this user may not look. */
  readonly lanes: number | null;
  readonly engines: readonly { readonly table: string; readonly engine: string }[];
  /** The text columns of Waybill's tables, each with the promise that a wrong collation breaks. */
  readonly collations: readonly { readonly table: string; readonly column: string; readonly collation: string; readonly breaks: string }[];
}

export async function readAnswers(connection: Connection, n: Names, clock: Clock): Promise<Answers> {
  const { run } = connection;
  const [server] = await run("SELECT VERSION() AS version, CURRENT_USER() AS user");
  const version = textOf(server!, "version");
  const rows = await run(`SHOW GLOBAL VARIABLES WHERE Variable_name IN (${asked.map((name) => `'${name}'`).join(", ")})`);
  const schema = await allowed(() => tablesIn(run, n));
  return {
    version: version.replace(/^5\.5\.5-/, ""),
    mariadb: /mariadb/i.test(version),
    variables: Object.fromEntries(rows.map((row) => [textOf(row, "Variable_name"), textOf(row, "Value")])),
    sees: (await allowed(() => run("SELECT 1 FROM information_schema.INNODB_TRX LIMIT 1"))) !== null,
    user: textOf(server!, "user"),
    clock: await sightClock(clock, async () => dateOf((await run("SELECT UTC_TIMESTAMP(6) AS at"))[0]!, "at").getTime()),
    schema,
    tables: schema !== null && isOurs(schema, fingerprints) ? await readTables(connection, n, clock) : null,
  };
}

/** Null where a privilege is missing on the server, on a table, on a column, on a database. */
const allowed = <T>(read: () => Promise<T>): Promise<T | null> =>
  unlessDenied(read, (error) => [1227, 1142, 1143, 1044].includes(errnoOf(error) ?? 0));

async function isDenied(run: Run, table: string): Promise<boolean> {
  try {
    return (await allowed(() => run(`SELECT 1 FROM ${table} LIMIT 0`))) === null;
  } catch (error) {
    if (errnoOf(error) === 1146) return false; // there is no such table
    throw error;
  }
}

async function readTables(connection: Connection, n: Names, clock: Clock): Promise<TableAnswers> {
  const { run } = connection;
  const unit = (await layoutOf(run, n))?.unit ?? null;
  const expected = thingsIn(createSchema(connection, n, clock, unit).print());
  const here = "= COALESCE(?, DATABASE())";
  const tables = await run(
    `SELECT TABLE_NAME AS name, TABLE_TYPE AS type, ENGINE AS engine FROM information_schema.TABLES WHERE TABLE_SCHEMA ${here}`,
    [n.schema],
  );
  const indexes = await run(
    `SELECT DISTINCT TABLE_NAME AS name, INDEX_NAME AS indexed, NON_UNIQUE AS several FROM information_schema.STATISTICS WHERE TABLE_SCHEMA ${here}`,
    [n.schema],
  );
  const triggers = await run(`SELECT TRIGGER_NAME AS name FROM information_schema.TRIGGERS WHERE TRIGGER_SCHEMA ${here}`, [n.schema]);
  const columns = await run(
    `SELECT TABLE_NAME AS name, COLUMN_NAME AS held, COLLATION_NAME AS collation FROM information_schema.COLUMNS
     WHERE TABLE_SCHEMA ${here} AND COLLATION_NAME IS NOT NULL AND DATA_TYPE IN ('varchar', 'char')`,
    [n.schema],
  );
  const own = new Map(expected.filter(({ kind }) => kind === "table").map(({ name }) => [name.toLowerCase(), name]));
  const consumers = [n.inbox, n.attempts, n.seats, n.letters].map(nameIn);
  const engines = tables.flatMap((row) => {
    const table = own.get(textOf(row, "name").toLowerCase());
    return table === undefined || textOrNull(row, "type") === "VIEW" ? [] : [{ table, engine: textOrNull(row, "engine") ?? "none" }];
  });
  // A user does not see tables on which it has no privilege. A relay needs none on the inbox.
  const seen = new Set(engines.map(({ table }) => table));
  const unseen: string[] = [];
  for (const table of [n.inbox, n.attempts, n.seats, n.letters])
    if (!seen.has(nameIn(table)) && (await isDenied(run, table))) unseen.push(nameIn(table));
  const lanes = nameIn(n.lanes);
  // A server may store names in lower case, so they are compared without regard to case.
  const spelt = new Map(expected.map(({ kind, name }) => [`${kind} ${name}`.toLowerCase(), `${kind} ${name}`]));
  return {
    expected: expected.filter(({ name }) => !unseen.includes(name.split(".")[0]!)),
    present: [
      ...tables.map((row) => `${textOrNull(row, "type") === "VIEW" ? "view" : "table"} ${textOf(row, "name")}`),
      ...indexes.map(
        (row) => `${numberOf(row, "several") === 0 ? "unique index" : "index"} ${textOf(row, "name")}.${textOf(row, "indexed")}`,
      ),
      ...triggers.map((row) => `trigger ${textOf(row, "name")}`),
    ].map((thing) => spelt.get(thing.toLowerCase()) ?? thing),
    seesTriggers: triggers.length > 0 || (await mayTrigger(run, n)),
    lanes: seen.has(lanes) ? await allowed(async () => numberOf((await run(`SELECT COUNT(*) AS n FROM ${n.lanes}`))[0]!, "n")) : 0,
    engines,
    collations: columns.flatMap((row) => {
      const table = own.get(textOf(row, "name").toLowerCase());
      if (table === undefined) return [];
      const breaks = consumers.includes(table) ? "E" : table === nameIn(n.keys) ? "L" : "O";
      return [{ table, column: textOf(row, "held"), collation: textOf(row, "collation"), breaks }];
    }),
  };
}

/** A right on a database may have been given by a pattern. */
async function mayTrigger(run: Run, n: Names): Promise<boolean> {
  const granted = (level: string, where: string): string =>
    `SELECT 1 AS found FROM information_schema.${level}_PRIVILEGES WHERE PRIVILEGE_TYPE = 'TRIGGER'${where}`;
  const found = await run(
    [
      granted("USER", ""),
      granted("SCHEMA", " AND COALESCE(?, DATABASE()) LIKE TABLE_SCHEMA"),
      granted("TABLE", " AND TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?"),
    ].join(" UNION ALL "),
    [n.schema, n.schema, n.plain("outbox")],
  );
  return found.length > 0;
}

const name = "(?:`(?:[^`]|``)*`\\.)?`((?:[^`]|``)*)`";

/** The objects that the statements create. The migration itself is the only list of them. */
function thingsIn(sql: string): readonly Thing[] {
  const tables = [...sql.matchAll(new RegExp(`^CREATE TABLE IF NOT EXISTS ${name} \\(([\\s\\S]*?)\\) ENGINE`, "gm"))];
  const others = [...sql.matchAll(new RegExp(`^CREATE (?:OR REPLACE SQL SECURITY INVOKER )?(TRIGGER|VIEW) ${name}`, "gm"))];
  return [
    ...tables.flatMap(([, table, lines]): Thing[] => [
      { kind: "table", name: unquoted(table!) },
      ...[...lines!.matchAll(/^ +(UNIQUE )?KEY (\w+) \(/gm)].map(([, unique, index]): Thing => ({
        kind: unique === undefined ? "index" : "unique index",
        name: `${unquoted(table!)}.${index!}`,
      })),
    ]),
    ...others.map(([, kind, made]): Thing => ({ kind: kind!.toLowerCase() as Thing["kind"], name: unquoted(made!) })),
  ];
}

const unquoted = (text: string): string => text.replaceAll("``", "`");
/** The name without quotes and schema. */
const nameIn = (quoted: string): string => unquoted(new RegExp(`^${name}$`).exec(quoted)![1]!);
