import type { Examination } from "../../contracts/examination.ts";
import type { Clock } from "../../core/clock.ts";
import { bad, good, isAtLeast, judgeClock, judgeLanes, judgeSchema, judgeThings, unknown, type Finding } from "../../core/finding.ts";
import { readAnswers, type Answers, type TableAnswers } from "./answers.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { SCHEMA_VERSION } from "./schema.ts";

export function createExamination(connection: Connection, n: Names, clock: Clock): Examination {
  return { examine: async () => judge(await readAnswers(connection, n, clock)) };
}

export function judge(answers: Answers): readonly Finding[] {
  const { tables } = answers;
  return [
    version(answers),
    ...synchronousCommit(answers),
    fsync(answers),
    fullPageWrites(answers),
    standbys(answers),
    recovery(answers),
    readOnly(answers),
    judgeClock(answers.clock),
    judgeSchema(answers.schema, SCHEMA_VERSION),
    ...rights(answers),
    ...(tables === null ? [] : [...tableRules.map((rule) => rule(tables)), autovacuum(answers, tables)]),
  ];
}

function version({ settings: { server_version: is } }: Answers): Finding {
  if (isAtLeast(is, "14")) return good("server_version", is, "14 or later is needed.");
  return bad(
    "server_version",
    is,
    "LO",
    "Waybill is made for PostgreSQL 14 and later, and nothing is promised before: upgrade the server.",
  );
}

/** Relays and leases do not suffer: their transactions are durable whatever the default is. Services' and handlers' have the default. */
function synchronousCommit({ settings, commits, role }: Answers): readonly Finding[] {
  const setting = "synchronous_commit";
  const value = settings.synchronous_commit;
  const judgeOne = (name: string, level: string, set: string): Finding => {
    if (level === "off")
      return bad(
        name,
        level,
        "L",
        `A server that crashes forgets transactions that it had committed, events and effects with them: ${set} = on.`,
      );
    if (level === "local" && settings.synchronous_standby_names !== "")
      return bad(name, level, "L", `A commit does not wait for the synchronous standby, which lacks it when it is promoted: ${set} = on.`);
    return good(name, level, "What is committed is on the disk.");
  };
  return [
    judgeOne(setting, value, `ALTER ROLE ${role} SET ${setting}`),
    ...commits
      .map((other) => judgeOne(`${setting} of role ${other.role}`, other.value, `ALTER ROLE ${other.role} SET ${setting}`))
      .filter(({ verdict }) => verdict === "bad"),
  ];
}

function fsync({ settings: { fsync: value } }: Answers): Finding {
  if (value === "on") return good("fsync", value, "Commits reach the disk.");
  return bad("fsync", value, "L", "A machine that loses its power loses commits, and can damage the whole database: set fsync = on.");
}

function fullPageWrites({ settings: { full_page_writes: value } }: Answers): Finding {
  if (value === "on") return good("full_page_writes", value, "Pages that were half written are mended.");
  return bad(
    "full_page_writes",
    value,
    "L",
    "A machine that loses its power can leave half a page, and what was on it is lost: set full_page_writes = on.",
  );
}

function standbys({ settings: { synchronous_standby_names: names }, standbys: count }: Answers): Finding {
  const setting = "synchronous_standby_names";
  const value = `${names === "" ? "none" : names} (standbys connected: ${count})`;
  if (names !== "" || count === 0)
    return good(setting, value, count === 0 ? "There is no standby to promote." : "A commit waits for a standby.");
  return bad(
    setting,
    value,
    "L",
    "A standby that is promoted may lack what the primary had committed: name one here, unless none of them is ever promoted.",
  );
}

function recovery({ inRecovery }: Answers): Finding {
  if (!inRecovery) return good("pg_is_in_recovery", "false", "It takes writes.");
  return bad(
    "pg_is_in_recovery",
    "true",
    "L",
    "A standby takes no writes, so that nothing can be claimed there: name the primary in the URL.",
  );
}

function readOnly({ settings: { default_transaction_read_only: value } }: Answers): Finding {
  const setting = "default_transaction_read_only";
  if (value === "off") return good(setting, value, "Transactions may write.");
  return bad(setting, value, "L", "Nothing can be added or claimed: set it to off for this role and database.");
}

/** Under the rules of `waybill migrate --print`. */
function rights({ role, lacks }: Answers): readonly Finding[] {
  const setting = `rights of role ${role}`;
  if (lacks === null) return [];
  if (lacks.length === 0) return [good(setting, "enough", "A relay may do all that it does.")];
  const why = "A relay of this role fails: grant it what waybill migrate --print shows, or run doctor as the role that relays have.";
  return [bad(setting, `lacks ${lacks.join(", ")}`, "L", why)];
}

type TableRule = (tables: TableAnswers) => Finding;

const sequence: TableRule = ({ sequence: is }) => {
  const setting = "sequence";
  if (is === null) return unknown(setting, null, "The sequence is not there.");
  const value = `CACHE ${is.cache}, INCREMENT ${is.increment}${is.cycles ? ", CYCLE" : ""}`;
  if (is.cache === "1" && is.increment === "1" && !is.cycles) return good(setting, value, "Numbers are drawn one by one, in their order.");
  return bad(
    setting,
    value,
    "O",
    "A session that keeps numbers in store gives a later event a lower one, which goes out first, or is not seen for minutes: ALTER SEQUENCE … CACHE 1 INCREMENT 1 NO CYCLE, and end the sessions of writers.",
  );
};

/** What must stand in the expression that fills a column, and what is lost without it. */
const filled: readonly (readonly [column: string, holds: string, breaks: string])[] = [
  ["seq", "next_seq()", "O"],
  ["lane", "lane(", "O"],
  ["id", "gen_random_uuid()", "E"],
  ["created_at", "clock_timestamp()", "V"],
  ["status", "'PENDING'", "L"],
];

const defaults: TableRule = ({ defaults: are, nextSeq }) => {
  const wrong = filled.filter(([column, holds]) => !(are[column] ?? "").replaceAll('"', "").includes(holds));
  const early = nextSeq.indexOf("pg_current_xact_id") >= 0 && nextSeq.indexOf("pg_current_xact_id") < nextSeq.indexOf("nextval");
  if (wrong.length === 0 && early) return good("defaults", "as made", "The database itself numbers events and puts them into lanes.");
  const value = [...wrong.map(([column]) => `${column}: ${are[column] ?? "none"}`), ...(early ? [] : ["next_seq: another body"])].join(
    "; ",
  );
  const letters = new Set([...wrong.map(([, , breaks]) => breaks), ...(early ? [] : ["O"])]);
  return bad(
    "defaults",
    value,
    [..."LOEV"].filter((letter) => letters.has(letter)).join(""),
    "Columns of the outbox have other defaults than migrate gave them: put them back as waybill migrate --print shows them.",
  );
};

const persistence: TableRule = ({ storage }) => {
  const unlogged = storage.filter((table) => table.unlogged).map(({ table }) => table);
  if (unlogged.length === 0) return good("persistence", "logged", "A crash leaves the tables as they were.");
  return bad("persistence", `unlogged: ${unlogged.join(", ")}`, "L", "A crash empties an unlogged table: ALTER TABLE … SET LOGGED.");
};

const rowSecurity: TableRule = ({ storage }) => {
  const hidden = storage.filter((table) => table.hidden).map(({ table }) => table);
  if (hidden.length === 0) return good("row security", "none", "This role sees every row.");
  return bad(
    "row security",
    `active: ${hidden.join(", ")}`,
    "LV",
    "Policies may hide events from this role, which are then neither published nor counted: ALTER ROLE … BYPASSRLS, or ALTER TABLE … DISABLE ROW LEVEL SECURITY.",
  );
};

const objects: TableRule = ({ expected, present }) => judgeThings(expected, ({ kind, name }) => present.includes(`${kind} ${name}`));
const lanes: TableRule = (tables) => judgeLanes(tables.lanes);

const tableRules = [objects, lanes, sequence, defaults, persistence, rowSecurity];

function autovacuum({ settings }: Answers, { storage }: TableAnswers): Finding {
  const off = [
    ...(["autovacuum", "track_counts"] as const).filter((name) => settings[name] !== "on").map((name) => `${name} off`),
    ...storage.filter((table) => !table.autovacuum).map(({ table }) => `autovacuum_enabled off for ${table}`),
  ];
  if (off.length === 0) return good("autovacuum", "on", "What is settled and purged is cleaned up.");
  return bad(
    "autovacuum",
    off.join(", "),
    "I",
    "Rows that were settled and purged stay where every scan meets them, and all aggregates get slower together: switch it on.",
  );
}
