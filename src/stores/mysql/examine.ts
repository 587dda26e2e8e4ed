import type { Examination } from "../../contracts/examination.ts";
import type { Clock } from "../../core/clock.ts";
import { bad, good, isAtLeast, judgeClock, judgeLanes, judgeSchema, judgeThings, unknown, type Finding } from "../../core/finding.ts";
import { readAnswers, type Answers, type TableAnswers } from "./answers.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { leastVersion, needed, SCHEMA_VERSION } from "./schema.ts";

export function createExamination(connection: Connection, n: Names, clock: Clock): Examination {
  return { examine: async () => judge(await readAnswers(connection, n, clock)) };
}

export function judge(answers: Answers): readonly Finding[] {
  const { tables } = answers;
  return [
    ...[version, flushLog, doublewrite, binlog, readOnly, storageEngine, isolation, seesOthers].map((rule) => rule(answers)),
    judgeClock(answers.clock),
    judgeSchema(answers.schema, SCHEMA_VERSION),
    ...(tables === null ? [] : [...objects(tables), judgeLanes(tables.lanes), engines(tables), collations(tables)]),
  ];
}

function version({ version: is, mariadb }: Answers): Finding {
  const least = leastVersion(mariadb);
  if (isAtLeast(is, least)) return good("version", is, `${least} or later is needed.`);
  return bad("version", is, "LO", `${needed}: upgrade the server.`);
}

const untold = (setting: string): Finding => unknown(setting, null, "This server has no variable of this name: see what it has instead.");

/** 3 is MariaDB's, and flushes twice. */
function flushLog({ variables: { innodb_flush_log_at_trx_commit: value } }: Answers): Finding {
  const setting = "innodb_flush_log_at_trx_commit";
  if (value === undefined) return untold(setting);
  if (value === "1" || value === "3") return good(setting, value, "What is committed is on the disk.");
  const when = value === "0" ? "A server that crashes" : "A machine that loses its power";
  return bad(
    setting,
    value,
    "L",
    `${when} loses about a second of transactions that it had committed, events and effects with them: set it to 1.`,
  );
}

function doublewrite({ variables: { innodb_doublewrite: value } }: Answers): Finding {
  const setting = "innodb_doublewrite";
  if (value === undefined) return untold(setting);
  if (!["OFF", "0", "DETECT_ONLY"].includes(value.toUpperCase())) return good(setting, value, "Pages that were half written are mended.");
  return bad(setting, value, "L", "A machine that loses its power can leave half a page, and what was on it is lost: switch it on.");
}

function binlog({ variables: { log_bin, sync_binlog: value } }: Answers): Finding {
  const setting = "sync_binlog";
  if (value === undefined || log_bin === undefined) return untold(setting);
  if (log_bin !== "ON") return good(setting, `${value} (no binary log)`, "There is no binary log, so that no replica follows it.");
  if (value === "1") return good(setting, value, "What is committed is in the binary log on the disk.");
  return bad(
    setting,
    value,
    "L",
    "After a crash the binary log may lack transactions that were committed, and so may a replica that is promoted: set it to 1.",
  );
}

function readOnly({ variables: { read_only: value } }: Answers): Finding {
  if (value === undefined) return untold("read_only");
  if (value === "OFF") return good("read_only", value, "It takes writes.");
  return bad("read_only", value, "L", "Nothing can be added or claimed on a server that takes no writes: name the primary in the URL.");
}

/** Waybill's own tables name theirs; those that services make may not. */
function storageEngine({ variables: { default_storage_engine: value } }: Answers): Finding {
  const setting = "default_storage_engine";
  if (value === undefined) return untold(setting);
  if (value.toLowerCase() === "innodb") return good(setting, value, "New tables can roll back.");
  return bad(
    setting,
    value,
    "E",
    "A handler's effects in tables of this engine stay when its transaction rolls back, and happen again: set it to InnoDB.",
  );
}

/** Waybill's own transactions set theirs. */
function isolation({ variables: { transaction_isolation, tx_isolation } }: Answers): Finding {
  const setting = "transaction_isolation";
  const value = transaction_isolation ?? tx_isolation;
  if (value === undefined) return untold(setting);
  if (value !== "READ-UNCOMMITTED") return good(setting, value, "Transactions see committed rows only.");
  return bad(
    setting,
    value,
    "P",
    "A service that reads rows which then roll back adds events about what never was: set READ-COMMITTED or stricter.",
  );
}

function seesOthers({ sees, user }: Answers): Finding {
  if (sees) return good("PROCESS", "granted", "Scans begin above what is settled.");
  return bad(
    "PROCESS",
    "not granted",
    "V",
    `The relay cannot see which transaction holds it back, and every scan begins at the first row: GRANT PROCESS ON *.* TO ${user}.`,
  );
}

function objects({ expected, present, seesTriggers }: TableAnswers): readonly Finding[] {
  const isThere = ({ kind, name }: TableAnswers["expected"][number]): boolean => present.includes(`${kind} ${name}`.toLowerCase());
  if (seesTriggers) return [judgeThings(expected, isThere)];
  return [
    judgeThings(
      expected.filter(({ kind }) => kind !== "trigger"),
      isThere,
    ),
    unknown(
      "objects (trigger)",
      null,
      "Only a user with the right TRIGGER sees whether the trigger for idempotency keys is there: look as another user.",
    ),
  ];
}

function engines({ engines: are }: TableAnswers): Finding {
  const others = are.filter(({ engine }) => engine.toLowerCase() !== "innodb");
  if (others.length === 0) return good("engine", "InnoDB", "All of Waybill's tables roll back, and survive a crash.");
  const value = others.map(({ table, engine }) => `${table}: ${engine}`).join(", ");
  return bad(
    "engine",
    value,
    "LP",
    "Events of a transaction that rolls back stay and are published, and a crash can lose others: ALTER TABLE … ENGINE = InnoDB.",
  );
}

const exact = ["ascii_bin", "utf8mb4_nopad_bin", "utf8mb4_0900_bin"];

function collations({ collations: are }: TableAnswers): Finding {
  const others = are.filter(({ collation }) => !exact.includes(collation));
  if (others.length === 0) return good("collation", "byte by byte", "Names and keys that differ are different.");
  return bad(
    "collation",
    others.map(({ table, column, collation }) => `${table}.${column}: ${collation}`).join(", "),
    [..."LOE"].filter((letter) => others.some(({ breaks }) => breaks === letter)).join(""),
    "Names and keys that differ in a letter's case, or in a space at the end, are taken for one: aggregates are mixed up, and events are swallowed as duplicates. Convert the columns back to what waybill migrate --print shows.",
  );
}
