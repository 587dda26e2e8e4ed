import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import { applyRules } from "../../core/finding.ts";
import type { TablesFound } from "../../core/tables.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { fileRules, readFile, type FileAnswers } from "../../drivers/sqlite/examine.ts";
import { isOurs, lanesRule, objectsRule, ofTables, tablesRule, type StoredThings, type Thing } from "../kit/doctor.ts";
import { createSchema, fingerprints, tablesOf } from "./schema.ts";

type TableAnswers = StoredThings & { readonly lanes: number };

export interface Answers extends FileAnswers {
  readonly schema: TablesFound;
  /** Null where the tables are not those of this version. */
  readonly tables: TableAnswers | null;
}

export function createExamination(connection: Connection, path: string): Examination {
  const expected = thingsIn(createSchema(connection, path).print());
  return {
    examine: async () => judge(await connection.read((statements) => readAnswers(statements, path, expected))),
  };
}

export const judge = (answers: Answers): readonly Finding[] => applyRules(rules, answers);

const ownHandles =
  "Each handle has its own, which doctor cannot see: set PRAGMA synchronous = FULL on those that add events (better-sqlite3 has NORMAL in WAL mode), or what they commit can be lost with the machine's power.";

export const rules: readonly Rule<Answers>[] = [
  ...fileRules.map((rule): Rule<Answers> =>
    rule.setting === "synchronous"
      ? {
          ...rule,
          look: (answers, say) => [rule.look(answers, say), say.as("synchronous of your own handles").unknown(null, ownHandles)].flat(),
        }
      : rule,
  ),
  tablesRule(fingerprints),
  ...ofTables<TableAnswers>([objectsRule, lanesRule]),
];

function readAnswers(statements: Statements, path: string, expected: readonly Thing[]): Answers {
  const schema = tablesOf(statements);
  const ours = isOurs(schema, fingerprints);
  const present = statements.all("SELECT type, name FROM sqlite_master").map((row) => `${String(row["type"])} ${String(row["name"])}`);
  const lanes = ours && present.includes("table waybill_lanes");
  return {
    ...readFile(statements, path),
    schema,
    tables: ours
      ? { expected, present, lanes: lanes ? Number(statements.get("SELECT count(*) AS n FROM waybill_lanes")?.["n"]) : 0 }
      : null,
  };
}

/** The objects that the statements create. The migration itself is the only list of them. */
export const thingsIn = (sql: string): readonly Thing[] =>
  [...sql.matchAll(/^CREATE (TABLE|INDEX|TRIGGER|VIEW) (\w+)/gm)].map(([, kind, name]) => ({
    kind: kind!.toLowerCase() as Thing["kind"],
    name: name!,
  }));
