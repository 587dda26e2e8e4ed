import { causesOf, sqlStateOf } from "../../core/causes.ts";
import type { Clock } from "../../core/clock.ts";
import type { TablesFound } from "../../core/tables.ts";
import { isOurs, sightClock, unlessDenied, type ClockSighting, type StoredThings, type Thing } from "../kit/doctor.ts";
import type { Connection, PgRow, Run } from "./connection.ts";
import { grants } from "./grants.ts";
import { literal, type Names } from "./names.ts";
import { createSchema, fingerprints, tablesOf, unitOf } from "./schema.ts";

const asked = [
  "server_version",
  "synchronous_commit",
  "fsync",
  "full_page_writes",
  "synchronous_standby_names",
  "default_transaction_read_only",
  "autovacuum",
  "track_counts",
] as const;

/** What the server said. */
export interface Answers {
  /** As a session of this role in this database has them before it sets any. */
  readonly settings: Readonly<Record<(typeof asked)[number], string>>;
  /** Other roles whose sessions begin with a synchronous_commit of their own. */
  readonly commits: readonly { readonly role: string; readonly value: string }[];
  readonly inRecovery: boolean;
  /** Schemas of this role's search path, and that of the tables, in which every role may create functions. */
  readonly open: readonly string[];
  /** Servers that receive the WAL, without logical subscribers and base backups. */
  readonly standbys: number;
  readonly clock: ClockSighting;
  readonly role: string;
  /** The rights of a relay that this role lacks; null where there are no tables. */
  readonly lacks: readonly string[] | null;
  /** Null where this role may not look. */
  readonly schema: TablesFound | null;
  /** Null where the tables are not those of this version. */
  readonly tables: TableAnswers | null;
}

/** An invalid index and a disabled trigger count as missing. */
export interface TableAnswers extends StoredThings {
  /** Null where this role may not look. */
  readonly lanes: number | null;
  readonly sequence: { readonly cache: string; readonly increment: string; readonly cycles: boolean } | null;
  /** The expressions that fill columns of the outbox. */
  readonly defaults: Readonly<Record<string, string>>;
  readonly storage: readonly TableStorage[];
}

interface TableStorage {
  readonly table: string;
  readonly unlogged: boolean;
  readonly autovacuum: boolean;
  /** Whether policies hide rows from this role. */
  readonly hidden: boolean;
}

/** Statement by statement: a transaction of ours would have settings of its own, and a pooler keeps none. */
export async function readAnswers(connection: Connection, n: Names, clock: Clock): Promise<Answers> {
  const { run } = connection;
  const settings = await run("SELECT name, setting FROM pg_settings WHERE name = ANY ($1)", [[...asked]]);
  const [server] = await run(
    `SELECT pg_is_in_recovery() AS standby, current_user AS role, to_regclass($1) IS NOT NULL AS there,
            (SELECT count(*) FROM pg_stat_replication r WHERE r.state IS DISTINCT FROM 'backup' AND NOT EXISTS (
               SELECT 1 FROM pg_replication_slots s WHERE s.active_pid = r.pid AND s.slot_type = 'logical')) AS standbys`,
    [n.outbox],
  );
  const commits = await run(
    `SELECT r.rolname AS role, split_part(c, '=', 2) AS value
     FROM pg_db_role_setting s JOIN pg_roles r ON r.oid = s.setrole CROSS JOIN LATERAL unnest(s.setconfig) c
     WHERE c LIKE 'synchronous\\_commit=%' AND r.rolname <> current_user
       AND s.setdatabase IN (0, (SELECT oid FROM pg_database WHERE datname = current_database()))`,
  );
  const [path] = await run("SELECT reset_val AS path FROM pg_settings WHERE name = 'search_path'");
  const open = await run(
    "SELECT nspname AS name FROM pg_namespace WHERE nspname = ANY ($1) AND has_schema_privilege('public', oid, 'CREATE') ORDER BY 1",
    [[...schemasIn(path!["path"]!, server!["role"]!), unquoted(n.schema)]],
  );
  const schema = await allowed(() => tablesOf(run, n));
  const ours = schema !== null && isOurs(schema, fingerprints);
  const unit = ours ? await unitOf(run, n) : null;
  return {
    settings: Object.fromEntries(settings.map((row) => [row["name"], row["setting"]])) as Answers["settings"],
    commits: commits.map((row) => ({ role: row["role"]!, value: row["value"]! })),
    open: open.map((row) => row["name"]!),
    inRecovery: server!["standby"] === "t",
    standbys: Number(server!["standbys"]),
    clock: await sightClock(clock, async () => Number((await run("SELECT extract(epoch FROM clock_timestamp()) * 1000 AS ms"))[0]!["ms"])),
    role: server!["role"]!,
    lacks: server!["there"] === "t" ? await readLacks(run, n, unit !== null) : null,
    schema,
    tables: ours ? await readTables(run, n, thingsIn(createSchema(connection, n, unit).print())) : null,
  };
}

/** The schemas of a search path, as the server shows it. */
export const schemasIn = (path: string, role: string): readonly string[] =>
  [...path.matchAll(/"((?:[^"]|"")*)"|([^\s,"]+)/g)]
    .map(([, quoted, plain]) => quoted?.replaceAll('""', '"') ?? plain!)
    .map((name) => (name === "$user" ? role : name));

const allowed = <T>(read: () => Promise<T>): Promise<T | null> =>
  unlessDenied(read, (error) => causesOf(error).some((cause) => sqlStateOf(cause) === "42501"));

async function readTables(run: Run, n: Names, expected: readonly Thing[]): Promise<TableAnswers> {
  const schema = unquoted(n.schema);
  const present = await run(
    `SELECT CASE WHEN c.relkind = 'S' THEN 'sequence' WHEN c.relkind = 'v' THEN 'view' WHEN i.indisunique THEN 'unique index'
                 WHEN c.relkind IN ('i', 'I') THEN 'index' ELSE 'table' END || ' ' || c.relname AS thing
     FROM pg_class c LEFT JOIN pg_index i ON i.indexrelid = c.oid
     WHERE c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND i.indisvalid IS NOT FALSE
     UNION ALL SELECT 'function ' || proname FROM pg_proc WHERE pronamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1)
     UNION ALL SELECT 'trigger ' || tgname FROM pg_trigger WHERE tgrelid = to_regclass($2) AND tgenabled IN ('O', 'A')`,
    [schema, n.outbox],
  );
  const [sequence] = await run(
    "SELECT seqcache AS cache, seqincrement AS increment, seqcycle AS cycles FROM pg_sequence WHERE seqrelid = to_regclass($1)",
    [n.seq],
  );
  const defaults = await run(
    `SELECT a.attname AS name, pg_get_expr(d.adbin, d.adrelid) AS filled FROM pg_attribute a
     JOIN pg_attrdef d ON d.adrelid = a.attrelid AND d.adnum = a.attnum WHERE a.attrelid = to_regclass($1)`,
    [n.outbox],
  );
  const storage = await run(
    `SELECT c.relname AS table, c.relpersistence = 'u' AS unlogged, row_security_active(c.oid) AS hidden,
            coalesce('autovacuum_enabled=false' = ANY (c.reloptions) OR 'autovacuum_enabled=off' = ANY (c.reloptions), false) AS kept
     FROM pg_class c WHERE c.relkind IN ('r', 'p') AND (
       c.relnamespace = (SELECT oid FROM pg_namespace WHERE nspname = $1) AND c.relname = ANY ($2)
       OR c.oid IN (SELECT inhrelid FROM pg_inherits WHERE inhparent = to_regclass($3)))
     ORDER BY c.relname`,
    [schema, expected.filter(({ kind }) => kind === "table").map(({ name }) => name), n.outbox],
  );
  const lanes = present.some((row) => row["thing"] === `table ${nameIn(n.lanes)}`)
    ? await allowed(async () => Number((await run(`SELECT count(*) AS n FROM ${n.lanes}`))[0]!["n"]))
    : 0;
  return {
    expected,
    present: present.map((row) => row["thing"]!),
    lanes,
    sequence:
      sequence === undefined ? null : { cache: sequence["cache"]!, increment: sequence["increment"]!, cycles: sequence["cycles"] === "t" },
    defaults: Object.fromEntries(defaults.map((row) => [row["name"], row["filled"]])) as Record<string, string>,
    storage: storage.map((row: PgRow) => ({
      table: row["table"]!,
      unlogged: row["unlogged"] === "t",
      autovacuum: row["kept"] !== "t",
      hidden: row["hidden"] === "t",
    })),
  };
}

/** The objects that these statements create. The migration itself is the only list of them. */
const thingsIn = (sql: string): readonly Thing[] =>
  [...sql.matchAll(/^CREATE (UNIQUE INDEX|INDEX|TABLE|VIEW|SEQUENCE|FUNCTION|TRIGGER) (?:"(?:[^"]|"")*"\.)?("(?:[^"]|"")*"|\w+)/gm)].map(
    ([, kind, name]) => ({ kind: kind!.toLowerCase() as Thing["kind"], name: name!.startsWith('"') ? unquoted(name!) : name! }),
  );

/** Likewise for rights: the list is what `grants` gives to a relay. */
async function readLacks(run: Run, n: Names, partitioned: boolean): Promise<readonly string[]> {
  const [usable] = await run("SELECT has_schema_privilege($1, 'USAGE') AS usable", [unquoted(n.schema)]);
  if (usable?.["usable"] !== "t") return [`USAGE on schema ${unquoted(n.schema)}`];
  const rights = rightsIn(grants(n, partitioned));
  const rows = await run(
    `SELECT what FROM (VALUES ${rights.map(({ what, held }) => `(${literal(what)}, ${held})`).join(", ")}) AS r (what, held) WHERE NOT held`,
  );
  return rows.map((row) => row["what"]!);
}

export function rightsIn(text: string): readonly { readonly what: string; readonly held: string }[] {
  return [...text.matchAll(/^GRANT (.+) ON (?!SCHEMA)(SEQUENCE |FUNCTION )?(".+) TO waybill_relay;$/gm)].flatMap(
    ([, rights, kind, targets]) =>
      [...targets!.matchAll(/"(?:[^"]|"")*"\.("(?:[^"]|"")*")(?:\([^)]*\))?/g)].flatMap(([target, name]) =>
        [...rights!.matchAll(/([A-Z]+)(?: \(([^)]*)\))?/g)].flatMap(([, right, columns]) => {
          const where = `${right!} on ${unquoted(name!)}`;
          if (columns === undefined)
            return [{ what: where, held: `has_${kind?.trim().toLowerCase() ?? "table"}_privilege(${literal(target)}, '${right!}')` }];
          return columns.split(", ").map((column) => ({
            what: `${right!} (${column}) on ${unquoted(name!)}`,
            held: `has_column_privilege(${literal(target)}, '${column}', '${right!}')`,
          }));
        }),
      ),
  );
}

const unquoted = (name: string): string => name.slice(1, -1).replaceAll('""', '"');
/** The last part of a qualified name. */
const nameIn = (qualified: string): string => unquoted(/"(?:[^"]|"")*"$/.exec(qualified)![0]);
