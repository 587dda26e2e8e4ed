import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import type { Clock } from "../../core/clock.ts";
import { applyRules, isAtLeast } from "../../core/finding.ts";
import { judgeTested, type Tested } from "../../core/tested.ts";
import { clockRule, lanesRule, lettersOf, objectsRule, ofTables, tablesRule } from "../kit/doctor.ts";
import { readAnswers, type Answers, type TableAnswers } from "./answers.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { fingerprints, leastVersion, needed } from "./schema.ts";

export function createExamination(connection: Connection, n: Names, clock: Clock): Examination {
  return { examine: async () => judge(await readAnswers(connection, n, clock)) };
}

export const judge = (answers: Answers): readonly Finding[] => applyRules(rules, answers);

const untold = "This server has no variable of this name: see what it has instead.";

/** What a good value of a variable means, and what a bad one does. */
const variable =
  (name: keyof Answers["variables"], isGood: (value: string) => boolean, good: string, bad: string): Rule<Answers>["look"] =>
  ({ variables: { [name]: value } }, say) => {
    if (value === undefined) return say.unknown(null, untold);
    return isGood(value) ? say.good(value, good) : say.bad(value, bad);
  };

const exact = ["ascii_bin", "utf8mb4_nopad_bin", "utf8mb4_0900_bin"];

const tableRules: readonly Rule<TableAnswers>[] = [
  {
    ...objectsRule,
    look({ expected, present, seesTriggers }, say) {
      if (seesTriggers) return objectsRule.look({ expected, present }, say);
      const unseen = "Only a user with the right TRIGGER sees whether the trigger for idempotency keys is there: look as another user.";
      const others = expected.filter(({ kind }) => kind !== "trigger");
      return [objectsRule.look({ expected: others, present }, say), say.as("objects (trigger)").unknown(null, unseen)].flat();
    },
  },
  lanesRule,
  {
    setting: "engine",
    badWhen: "one of Waybill's tables is not InnoDB",
    breaks: "LP",
    remedy: "`ALTER TABLE … ENGINE = InnoDB`",
    look({ engines }, { good, bad }) {
      const others = engines.filter(({ engine }) => engine.toLowerCase() !== "innodb");
      if (others.length === 0) return good("InnoDB", "All of Waybill's tables roll back, and survive a crash.");
      const value = others.map(({ table, engine }) => `${table}: ${engine}`).join(", ");
      return bad(value, "Events of a transaction that rolls back stay and are published, and a crash can lose others");
    },
  },
  {
    setting: "collation",
    badWhen: "a column does not compare byte by byte",
    breaks: "LOE",
    remedy: "convert the columns back to what `waybill migrate --print` shows",
    look({ collations }, { good, bad }) {
      const others = collations.filter(({ collation }) => !exact.includes(collation));
      if (others.length === 0) return good("byte by byte", "Names and keys that differ are different.");
      return bad(
        others.map(({ table, column, collation }) => `${table}.${column}: ${collation}`).join(", "),
        "Names and keys that differ in a letter's case, or in a space at the end, are taken for one, so that aggregates are mixed up and events are swallowed as duplicates",
        { breaks: lettersOf(others.map(({ breaks }) => breaks)) },
      );
    },
  },
];

export const tested: Readonly<Record<"mariadb" | "mysql", Tested>> = {
  mariadb: { server: "MariaDB", oldest: "10.11", newest: "11.8" },
  mysql: { server: "MySQL", oldest: "8.0.33", newest: "9.7" },
};

export const rules: readonly Rule<Answers>[] = [
  {
    setting: "version",
    badWhen: "before MariaDB 10.6 or MySQL 8.0.19; unknown before MariaDB 10.11 or MySQL 8.0.33, and after MariaDB 11.8 or MySQL 9.7",
    breaks: "LO",
    remedy: "upgrade the server",
    look({ version, mariadb }, say) {
      if (!isAtLeast(version, leastVersion(mariadb))) return say.bad(version, needed);
      return judgeTested(version, mariadb ? tested.mariadb : tested.mysql, say);
    },
  },
  {
    setting: "innodb_flush_log_at_trx_commit",
    badWhen: "0 or 2",
    breaks: "L",
    remedy: "set it to 1",
    look: variable(
      "innodb_flush_log_at_trx_commit",
      (value) => value === "1" || value === "3", // 3 is MariaDB's, and flushes twice
      "What is committed is on the disk.",
      "A server that crashes (0), or a machine that loses its power (2), loses about a second of transactions that it had committed, events and effects with them",
    ),
  },
  {
    setting: "innodb_doublewrite",
    badWhen: "off, or only detecting",
    breaks: "L",
    remedy: "switch it on",
    look: variable(
      "innodb_doublewrite",
      (value) => !["OFF", "0", "DETECT_ONLY"].includes(value.toUpperCase()),
      "Pages that were half written are mended.",
      "A machine that loses its power can leave half a page, and what was on it is lost",
    ),
  },
  {
    setting: "sync_binlog",
    badWhen: "not 1 while there is a binary log",
    breaks: "L",
    remedy: "set it to 1",
    look({ variables: { log_bin, sync_binlog: value } }, { good, bad, unknown }) {
      if (value === undefined || log_bin === undefined) return unknown(null, untold);
      if (log_bin !== "ON") return good(`${value} (no binary log)`, "There is no binary log, so that no replica follows it.");
      if (value === "1") return good(value, "What is committed is in the binary log on the disk.");
      return bad(value, "After a crash the binary log may lack transactions that were committed, and so may a replica that is promoted");
    },
  },
  {
    setting: "read_only",
    badWhen: "`ON`",
    breaks: "L",
    remedy: "name the primary in the URL",
    look: variable(
      "read_only",
      (value) => value === "OFF",
      "It takes writes.",
      "Nothing can be added or claimed on a server that takes no writes",
    ),
  },
  {
    setting: "default_storage_engine", // Waybill's own tables name theirs; those that services make may not
    badWhen: "not InnoDB",
    breaks: "E",
    remedy: "set it to InnoDB",
    look: variable(
      "default_storage_engine",
      (value) => value.toLowerCase() === "innodb",
      "New tables can roll back.",
      "A handler's effects in tables of this engine stay when its transaction rolls back, and happen again",
    ),
  },
  {
    setting: "transaction_isolation", // Waybill's own transactions set theirs
    badWhen: "`READ-UNCOMMITTED`",
    breaks: "P",
    remedy: "set `READ-COMMITTED` or stricter",
    look({ variables: { tx_isolation, transaction_isolation: value = tx_isolation } }, { good, bad, unknown }) {
      if (value === undefined) return unknown(null, untold);
      if (value !== "READ-UNCOMMITTED") return good(value, "Transactions see committed rows only.");
      return bad(value, "A service that reads rows which then roll back adds events about what never was");
    },
  },
  {
    setting: "PROCESS",
    badWhen: "not granted",
    breaks: "V",
    remedy: "`GRANT PROCESS ON *.*` to the relay's user",
    look({ sees, user }, { good, bad }) {
      if (sees) return good("granted", "Scans begin above what is settled.");
      const remedy = `GRANT PROCESS ON *.* TO ${user}`;
      return bad("not granted", "The relay cannot see which transaction holds it back, and every scan begins at the first row", { remedy });
    },
  },
  clockRule,
  tablesRule(fingerprints),
  ...ofTables(tableRules),
];
