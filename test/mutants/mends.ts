import { versionRows } from "../versions/table.ts";
import { killerText, mutants, type Mutant } from "./table.ts";

/** Something that broke in users' hands behind a green suite, and the mutants that take its mends back. */
interface Mend {
  readonly broke: string;
  readonly mutants: readonly string[];
}

const mend = (broke: string, ...names: readonly string[]): Mend => ({ broke, mutants: names });

export const mends: readonly Mend[] = [
  mend("A handler that adds an event on PostgreSQL ended the subscriber's process.", "postgres-hint-through-the-loan"),
  mend(
    "One handler that ran COMMIT or TRUNCATE in a batch made letters of the whole batch.",
    "batch-commits-inside",
    "batch-marks-at-once",
    "mysql-batch-marks-at-once",
  ),
  mend("Each failed event of a backlog kept the payloads of its window in the relay's memory.", "stops-are-kept"),
  mend("Batches whose handlers update the same rows were 14 times slower than events one by one.", "batches-conflict-on"),
  mend("On NATS 2.10 and later, a subscriber that began behind a backlog applied almost none of it.", "nats-complete-is-lost"),
  mend("On NATS 2.10 and later, nobody was told of messages that a stream had removed.", "nats-marks-not-kept"),
  mend("Every event that was added through Prisma on MySQL was refused.", "mysql-savepoint-probe"),
  mend("On MySQL, the table took headers that no relay can carry.", "mysql-headers-with-nul"),
  mend(
    "On PostgreSQL 14, any role could have functions of its own run by a migration, a relay or a subscriber.",
    "postgres-any-path",
    "postgres-functions-any-path",
  ),
  mend("Each invented topic had a record of its own.", "records-without-bound"),
  mend("Invented topics took the place of one that exists.", "invented-topics-take-the-places"),
  mend("Events for invented topics were sent again and again.", "crowd-sent-in-full"),
  mend("A relay that was started again did not look for them.", "crowd-forgotten"),
  mend("Events paid with attempts while the broker was away.", "outage-spends-attempts"),
  mend("Every settle of good events read all aggregates that wait.", "postgres-reads-all-holds"),
  mend("Headers of 128 KiB delayed the events of others.", "postgres-long-headers", "sqlite-long-headers"),
  mend("Each failed event was settled by statements of its own.", "sqlite-parks-one-by-one"),
  mend("Redis: an array of 2^32 values, or arrays 200,000 deep, ended the process.", "redis-client-reads"),
  mend("Redis: OK to everything ended the process.", "redis-flush-rejects"),
  mend("Redis, Kafka, NATS: an answer of hundreds of megabytes was taken.", "redis-any-size", "kafka-any-size", "nats-any-size"),
  mend("Kafka: an answer of 2 bytes ended the process.", "kafka-client-cuts"),
  mend("NATS: a server that never finished its first line kept the process waiting.", "nats-greeting-without-end"),
  mend("NATS: a max_payload of -1 made every event DEAD.", "nats-any-limit"),
  mend("NATS: the server's raw bytes came out at the terminal.", "nats-client-prints"),
  mend("A wrong answer was reported in JavaScript's words.", "redis-any-entry"),
  mend("Connections that pipelined requests to the pages for probes blocked the process.", "probes-answer-pipelines"),
  mend("Any number of connections could wait for these pages.", "probes-any-number"),
  mend("Clients that did not read their answers filled the memory.", "probes-hold-any-bytes", "probes-wait-for-ever"),
];

const suites: readonly (readonly [name: string, has: (file: string) => boolean])[] = [
  ["[compositions](../CONTRIBUTING.md#tests)", (file) => file.startsWith("test/compositions/")],
  ["[fuzz](fuzzing.md)", (file) => file.startsWith("test/fuzz/line")],
  ["[prices](prices.md)", (file) => file.startsWith("test/prices/")],
  ["[soak](soak.md)", (file) => file.startsWith("test/soak/")],
  ["[versions](versions.md)", (file) => versionRows.some(({ files }) => files.includes(file))],
];

/** The suite of many cases that finds the mutant; null where only a test made for it does. */
export function suiteOf({ killer }: Mutant): string | null {
  if (killer === "simulation") return null;
  return suites.find(([, has]) => has(killer.tests))?.[0] ?? null;
}

export const mutantNamed = (name: string): Mutant | undefined => mutants.find((mutant) => mutant.name === name);

/** The second table of docs/mutants.md. */
export function mendsMarkdown(): string {
  const rows = mends.flatMap(({ broke, mutants: names }) =>
    names.map((name, at) => {
      const mutant = mutantNamed(name)!;
      return `| ${at === 0 ? broke : ""} | \`${name}\` | ${suiteOf(mutant)} | ${killerText(mutant.killer)} |`;
    }),
  );
  return ["| what broke | mutant | suite | test that fails |", "|---|---|---|---|", ...rows].join("\n");
}
