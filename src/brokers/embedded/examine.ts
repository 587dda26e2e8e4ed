import type { Examination } from "../../contracts/examination.ts";
import { bad, good, type Finding } from "../../core/finding.ts";
import { createConnection, type ConnectionOptions, type Statements } from "../../drivers/sqlite/connection.ts";
import { fileRules, readFile, type FileAnswers } from "../../drivers/sqlite/examine.ts";
import { versions } from "./schema.ts";

export interface Answers extends FileAnswers {
  /** The broker's tables and indexes that are there, by their names. */
  readonly present: readonly string[];
  readonly topics: readonly { readonly topic: string; readonly exists: boolean }[];
  /** Whether a topic comes into being with its first message. */
  readonly provision: boolean;
}

/** Over a connection of its own: the log's would make tables that are not there. */
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

export const judge = (answers: Answers): readonly Finding[] => [
  ...fileRules.map((rule) => rule(answers)),
  objects(answers),
  ...answers.topics.map((topic) => judgeTopic(topic, answers.provision)),
];

const script = versions.join("\n");
const made = [...script.matchAll(/^CREATE (TABLE|INDEX) (\w+)/gm)]
  .map(([, kind, name]) => ({ kind: kind!.toLowerCase(), name: name! }))
  .filter(({ name }) => !script.includes(`DROP TABLE ${name};`)); // made for the move to a later version, and gone with it

function objects({ present }: Answers): Finding {
  const missing = made.filter(({ name }) => !present.includes(name));
  if (missing.length === 0) return good("objects", `${made.length} of ${made.length}`, "Everything that the broker makes is there.");
  if (missing.length === made.length) return good("objects", "none", "They are made on first use.");
  return bad(
    "objects",
    `missing: ${missing.map(({ kind, name }) => `${kind} ${name}`).join(", ")}`,
    missing.some(({ kind }) => kind === "table") ? "L" : "I",
    "The file lacks what the broker made: without a table nothing is stored, without an index one topic's messages slow all others down.",
  );
}

function judgeTopic({ topic, exists }: Answers["topics"][number], provision: boolean): Finding {
  const setting = `topic of ${topic}`;
  if (exists) return good(setting, "there", "Messages are kept until every known consumer has them.");
  if (provision) return good(setting, "none", "It comes into being with its first message.");
  return bad(setting, "none", "L", `Events for it wait: run waybill migrate --broker … --topics ${topic}.`);
}

function readAnswers(statements: Statements, path: string, topics: readonly string[], provision: boolean): Answers {
  const present = statements.all("SELECT name FROM sqlite_master WHERE name LIKE 'waybill_broker_%'").map((row) => String(row["name"]));
  const known = present.includes("waybill_broker_topics")
    ? statements.all("SELECT topic FROM waybill_broker_topics").map((row) => String(row["topic"]))
    : [];
  return {
    ...readFile(statements, path),
    present,
    topics: topics.map((topic) => ({ topic, exists: known.includes(topic) })),
    provision,
  };
}
