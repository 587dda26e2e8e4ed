import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import type { Clock } from "../../core/clock.ts";
import { applyRules, isAtLeast } from "../../core/finding.ts";
import { judgeTested, type Tested } from "../../core/tested.ts";
import { clockRule, lanesRule, lettersOf, objectsRule, ofTables, tablesRule } from "../kit/doctor.ts";
import { readAnswers, type Answers, type TableAnswers } from "./answers.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { fingerprints } from "./schema.ts";

export function createExamination(connection: Connection, n: Names, clock: Clock): Examination {
  return { examine: async () => judge(await readAnswers(connection, n, clock)) };
}

export const judge = (answers: Answers): readonly Finding[] => applyRules(rules, answers);

/** `good` says what the wanted value means, `bad` what any other value does. */
const setTo =
  (name: keyof Answers["settings"], wanted: string, good: string, bad: string): Rule<Answers>["look"] =>
  ({ settings: { [name]: value } }, say) =>
    value === wanted ? say.good(value, good) : say.bad(value, bad);

/** What the expression that fills a column must contain, and which promise breaks without it. */
const filled: readonly (readonly [column: string, holds: RegExp, breaks: string])[] = [
  // The transaction gets its id before it draws the number.
  ["seq", /^CASE WHEN \(?pg_current_xact_id\(\) IS NULL\)? THEN NULL::bigint ELSE nextval\(/, "O"],
  ["lane", /lane\(/, "O"],
  ["id", /gen_random_uuid\(\)/, "E"],
  ["created_at", /clock_timestamp\(\)/, "V"],
  ["status", /'PENDING'/, "L"],
];

const tableRules: readonly Rule<TableAnswers>[] = [
  objectsRule,
  lanesRule,
  {
    setting: "sequence",
    badWhen: "`CACHE` above 1, another increment, `CYCLE`",
    breaks: "O",
    remedy: "`ALTER SEQUENCE … CACHE 1 INCREMENT 1 NO CYCLE`, and end the sessions of writers",
    look({ sequence: is }, { good, bad, unknown }) {
      if (is === null) return unknown(null, "The sequence is not there.");
      const value = `CACHE ${is.cache}, INCREMENT ${is.increment}${is.cycles ? ", CYCLE" : ""}`;
      if (value === "CACHE 1, INCREMENT 1") return good(value, "Numbers are drawn one by one, in their order.");
      return bad(
        value,
        "A session that keeps numbers in store gives a later event a lower one, which goes out first, or is not seen for minutes",
      );
    },
  },
  {
    setting: "defaults",
    badWhen: "`seq`, `lane`, `id`, `created_at` or `status` has another default",
    breaks: "LOEV",
    remedy: "put them back as `waybill migrate --print` shows them",
    look({ defaults: are }, { good, bad }) {
      const wrong = filled
        .filter(([column, holds]) => !holds.test((are[column] ?? "").replaceAll('"', "").replaceAll(/\s+/g, " ").trim()))
        .map(([column, , breaks]) => ({ what: `${column}: ${are[column] ?? "none"}`, breaks }));
      if (wrong.length === 0) return good("as made", "The database itself numbers events and puts them into lanes.");
      const breaks = lettersOf(wrong.map((each) => each.breaks));
      return bad(wrong.map(({ what }) => what).join("; "), "Columns of the outbox have other defaults than migrate gave them", { breaks });
    },
  },
  {
    setting: "persistence",
    badWhen: "a table is `UNLOGGED`",
    breaks: "L",
    remedy: "`ALTER TABLE … SET LOGGED`",
    look({ storage }, { good, bad }) {
      const unlogged = storage.filter((table) => table.unlogged).map(({ table }) => table);
      if (unlogged.length === 0) return good("logged", "A crash leaves the tables as they were.");
      return bad(`unlogged: ${unlogged.join(", ")}`, "A crash empties an unlogged table");
    },
  },
  {
    setting: "row security",
    badWhen: "policies apply to this role",
    breaks: "LV",
    remedy: "`ALTER ROLE … BYPASSRLS`, or `ALTER TABLE … DISABLE ROW LEVEL SECURITY`",
    look({ storage }, { good, bad }) {
      const hidden = storage.filter((table) => table.hidden).map(({ table }) => table);
      if (hidden.length === 0) return good("none", "This role sees every row.");
      return bad(`active: ${hidden.join(", ")}`, "Policies may hide events from this role, which are then neither published nor counted");
    },
  },
];

export const tested: Tested = { server: "PostgreSQL", oldest: "14", newest: "18" };

export const rules: readonly Rule<Answers>[] = [
  {
    setting: "server_version",
    badWhen: "before 14; unknown after 18",
    breaks: "LO",
    remedy: "upgrade the server",
    look({ settings: { server_version: is } }, say) {
      if (isAtLeast(is, tested.oldest)) return judgeTested(is, tested, say);
      return say.bad(is, "Waybill is made for PostgreSQL 14 and later, and nothing is promised before");
    },
  },
  {
    setting: "synchronous_commit",
    badWhen: "`off`, or `local` beside a synchronous standby, for this role and database or for another role",
    breaks: "L",
    remedy: "`on`. Relays and leases are durable in any case; commits of services and handlers are not",
    look({ settings, commits, role }, say) {
      const of = (name: string, value: string, { good, bad } = say): Finding => {
        const remedy = `ALTER ROLE ${name} SET synchronous_commit = on`;
        if (value === "off")
          return bad(value, "A server that crashes forgets transactions that it had committed, events and effects with them", { remedy });
        if (value === "local" && settings.synchronous_standby_names !== "")
          return bad(value, "A commit does not wait for the synchronous standby, which lacks it when it is promoted", { remedy });
        return good(value, "What is committed is on the disk.");
      };
      const others = commits.map((other) => of(other.role, other.value, say.as(`synchronous_commit of role ${other.role}`)));
      return [of(role, settings.synchronous_commit), ...others.filter(({ verdict }) => verdict === "bad")];
    },
  },
  {
    setting: "fsync",
    badWhen: "`off`",
    breaks: "L",
    remedy: "set `fsync = on`",
    look: setTo(
      "fsync",
      "on",
      "Commits reach the disk.",
      "A machine that loses its power loses commits, and can damage the whole database",
    ),
  },
  {
    setting: "full_page_writes",
    badWhen: "`off`",
    breaks: "L",
    remedy: "set `full_page_writes = on`",
    look: setTo(
      "full_page_writes",
      "on",
      "Pages that were half written are mended.",
      "A machine that loses its power can leave half a page, and what was on it is lost",
    ),
  },
  {
    setting: "synchronous_standby_names",
    badWhen: "empty while a standby is connected",
    breaks: "L",
    remedy: "name one here, unless none of them is ever promoted",
    look({ settings: { synchronous_standby_names: names }, standbys }, { good, bad }) {
      const value = `${names === "" ? "none" : names} (standbys connected: ${standbys})`;
      if (standbys === 0) return good(value, "There is no standby to promote.");
      if (names !== "") return good(value, "A commit waits for a standby.");
      return bad(value, "A standby that is promoted may lack what the primary had committed");
    },
  },
  {
    setting: "pg_is_in_recovery",
    badWhen: "the server is a standby",
    breaks: "L",
    remedy: "name the primary in the URL",
    look({ inRecovery }, { good, bad }) {
      if (!inRecovery) return good("false", "It takes writes.");
      return bad("true", "A standby takes no writes, so that nothing can be claimed there");
    },
  },
  {
    setting: "default_transaction_read_only",
    badWhen: "`on`",
    breaks: "L",
    remedy: "set it to `off` for this role and database",
    look: setTo("default_transaction_read_only", "off", "Transactions may write.", "Nothing can be added or claimed"),
  },
  {
    setting: "search_path",
    badWhen: "PUBLIC may create in one of its schemas, or in that of the tables, as on databases from before PostgreSQL 15",
    breaks: "LPE",
    remedy: "`REVOKE CREATE ON SCHEMA … FROM PUBLIC`",
    look({ open }, { good, bad }) {
      if (open.length === 0) return good("closed to others", "Only owners create functions where sessions look for them.");
      return bad(
        `every role may create in ${open.join(", ")}`,
        "Waybill's own statements look elsewhere, but a service's or handler's statement can call a function that another role put there, with the rights of its caller",
      );
    },
  },
  clockRule,
  tablesRule(fingerprints),
  {
    setting: "rights",
    badWhen: "the role lacks what a relay needs",
    breaks: "L",
    remedy: "grant it what `waybill migrate --print --grants` shows, or run doctor as the role that relays have",
    look({ role, lacks }, say) {
      const { good, bad } = say.as(`rights of role ${role}`);
      if (lacks === null) return [];
      if (lacks.length === 0) return good("enough", "A relay may do all that it does.");
      return bad(`lacks ${lacks.join(", ")}`, "A relay of this role fails");
    },
  },
  ...ofTables(tableRules),
  {
    setting: "autovacuum",
    badWhen: "off for the server or for one of the tables",
    breaks: "I",
    remedy: "switch it on",
    look({ settings, tables }, { good, bad }) {
      if (tables === null) return [];
      const off = [
        ...(["autovacuum", "track_counts"] as const).filter((name) => settings[name] !== "on").map((name) => `${name} off`),
        ...tables.storage.filter(({ autovacuum }) => !autovacuum).map(({ table }) => `autovacuum_enabled off for ${table}`),
      ];
      if (off.length === 0) return good("on", "What is settled and purged is cleaned up.");
      const slow = "Rows that were settled and purged stay where every scan meets them, and all aggregates get slower together";
      return bad(off.join(", "), slow);
    },
  },
];
