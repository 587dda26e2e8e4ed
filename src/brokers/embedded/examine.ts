import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import { applyRules } from "../../core/finding.ts";
import type { TablesFound } from "../../core/tables.ts";
import { createConnection, type ConnectionOptions, type Statements } from "../../drivers/sqlite/connection.ts";
import { fileRules, readFile, type FileAnswers } from "../../drivers/sqlite/examine.ts";
import { migrate, rule } from "../kit/doctor.ts";
import { fingerprints, tablesOf, versions } from "./schema.ts";

export interface Answers extends FileAnswers {
  readonly schema: TablesFound;
  /** The broker's tables and indexes that are there, by their names. */
  readonly present: readonly string[];
  readonly topics: readonly { readonly topic: string; readonly exists: boolean }[];
  /** Whether a topic is created with its first message. */
  readonly provision: boolean;
}

/** Uses its own connection: the log's would create missing tables. */
export function createExamination(options: ConnectionOptions, provision: boolean): Examination {
  return {
    async examine(topics) {
      const connection = createConnection(options);
      try {
        return judge(await connection.read((statements) => readAnswers(statements, options.path, topics, provision)));
      } finally {
        await connection.close();
      }
    },
  };
}

export const judge = (answers: Answers): readonly Finding[] => applyRules(rules, answers);

const made = [...versions.join("\n").matchAll(/^CREATE (TABLE|INDEX) (\w+)/gm)].map(([, kind, name]) => ({
  kind: kind!.toLowerCase(),
  name: name!,
}));

export const rules: readonly Rule<Answers>[] = [
  ...fileRules,
  rule(
    "schema version",
    "newer tables, or those of an unreleased build",
    "L",
    "upgrade waybill here",
    ({ schema: { version, fingerprint } }, { good, bad }) => {
      if (version === 0) return good("none", "The tables are made on first use.");
      if (fingerprint !== null && fingerprint === fingerprints[version - 1])
        return good(
          String(version),
          version === fingerprints.length ? "The tables are those of this version." : "They are upgraded on first use.",
        );
      if (version > fingerprints.length && fingerprint !== null)
        return bad(String(version), `This code knows version ${fingerprints.length} at most, and refuses to work with newer tables`);
      return bad(String(version), "An unreleased build made these tables, and this code refuses to work with them", {
        remedy: "let the build that made them deliver what waits, then begin with a new file",
      });
    },
  ),
  rule("objects", "a table or an index was dropped", "LI", "recreate it", ({ present }, { good, bad }) => {
    const missing = made.filter(({ name }) => !present.includes(name));
    if (missing.length === 0) return good(`${made.length} of ${made.length}`, "Everything that the broker makes is there.");
    if (missing.length === made.length) return good("none", "They are made on first use.");
    const value = `missing: ${missing.map(({ kind, name }) => `${kind} ${name}`).join(", ")}`;
    const lacks = "The file lacks what the broker made";
    if (missing.some(({ kind }) => kind === "table")) return bad(value, `${lacks}, and without a table nothing is stored`, { breaks: "L" });
    return bad(value, `${lacks}, and without an index one topic's messages slow all others down`, { breaks: "I" });
  }),
  rule("topic", "it is not there, and the option `provision` is off", "L", migrate(), ({ topics, provision }, say) =>
    topics.map(({ topic, exists }) => {
      const { good, bad } = say.as(`topic of ${topic}`);
      if (exists) return good("there", "Messages are kept until every known consumer has them.");
      if (provision) return good("none", "It comes into being with its first message.");
      return bad("none", "Events for it wait", { remedy: migrate(topic) });
    }),
  ),
];

function readAnswers(statements: Statements, path: string, topics: readonly string[], provision: boolean): Answers {
  const present = statements.all("SELECT name FROM sqlite_master WHERE name LIKE 'waybill_broker_%'").map((row) => String(row["name"]));
  const known = present.includes("waybill_broker_topics")
    ? statements.all("SELECT topic FROM waybill_broker_topics").map((row) => String(row["topic"]))
    : [];
  return {
    ...readFile(statements, path),
    schema: tablesOf(statements),
    present,
    topics: topics.map((topic) => ({ topic, exists: known.includes(topic) })),
    provision,
  };
}
