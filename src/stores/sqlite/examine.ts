import type { Examination } from "../../contracts/examination.ts";
import { judgeLanes, judgeSchema, judgeThings, unknown, type Finding, type Thing } from "../../core/finding.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { fileRules, readFile, type FileAnswers } from "../../drivers/sqlite/examine.ts";
import { createSchema, SCHEMA_VERSION, versionOf } from "./schema.ts";

export interface Answers extends FileAnswers {
  readonly schema: number;
  /** Null where the tables are not those of this version. */
  readonly tables: TableAnswers | null;
}

export interface TableAnswers {
  readonly expected: readonly Thing[];
  /** As `kind name`. */
  readonly present: readonly string[];
  readonly lanes: number;
}

export function createExamination(connection: Connection, path: string): Examination {
  const expected = thingsIn(createSchema(connection, path).print());
  return {
    examine: async () => judge(await connection.read((statements) => readAnswers(statements, path, expected))),
  };
}

export function judge(answers: Answers): readonly Finding[] {
  const { schema, tables } = answers;
  return [
    ...fileRules.map((rule) => rule(answers)),
    ownHandles(),
    judgeSchema(schema, SCHEMA_VERSION),
    ...(tables === null
      ? []
      : [judgeThings(tables.expected, ({ kind, name }) => tables.present.includes(`${kind} ${name}`)), judgeLanes(tables.lanes)]),
  ];
}

function ownHandles(): Finding {
  return unknown(
    "synchronous of your own handles",
    null,
    "Each handle has its own, which doctor cannot see: set PRAGMA synchronous = FULL on those that add events (better-sqlite3 has NORMAL in WAL mode), or what they commit can be lost with the machine's power.",
  );
}

function readAnswers(statements: Statements, path: string, expected: readonly Thing[]): Answers {
  const schema = versionOf(statements);
  const present = statements.all("SELECT type, name FROM sqlite_master").map((row) => `${String(row["type"])} ${String(row["name"])}`);
  const lanes = schema === SCHEMA_VERSION && present.includes("table waybill_lanes");
  return {
    ...readFile(statements, path),
    schema,
    tables:
      schema === SCHEMA_VERSION
        ? { expected, present, lanes: lanes ? Number(statements.get("SELECT count(*) AS n FROM waybill_lanes")?.["n"]) : 0 }
        : null,
  };
}

/** What statements make: one list, and that is the migration itself. */
export const thingsIn = (sql: string): readonly Thing[] =>
  [...sql.matchAll(/^CREATE (TABLE|INDEX|TRIGGER|VIEW) (\w+)/gm)].map(([, kind, name]) => ({
    kind: kind!.toLowerCase() as Thing["kind"],
    name: name!,
  }));
