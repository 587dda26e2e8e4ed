import { compare, ours, type Side } from "../measure/compare.ts";
import { databases, type DatabaseName, type Ground, type Place } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

const way = (name: string, task: object): Side => ({ name, side: "add", task });
const libraries = { drizzle: "Drizzle", kysely: "Kysely", knex: "Knex", typeorm: "TypeORM", prisma: "Prisma" } as const;
const told = (events: number): string => `${events.toLocaleString("en")} transactions of ten writers`;

/** The cost that an event adds to a service's own transaction. */
export async function* add(ground: Ground): AsyncGenerator<Finding> {
  for (const database of ground.chosen(["postgres", "mariadb", "sqlite"] as const)) {
    await using store: Place = await databases[database].open(ground);
    yield* withClient(ground, database, store);
    if (database === "postgres") yield* withLibraries(ground, store);
  }
}

const ownClient = { postgres: "PostgreSQL (pg)", mariadb: "MariaDB (mysql2)", sqlite: "SQLite" } as const;

async function* withClient(ground: Ground, database: DatabaseName, store: Place): AsyncGenerator<Finding> {
  const events = ground.size(10_000);
  const sides = [
    ...ours(ground, way("outbox.add", { way: "outbox" })),
    way("by hand into our table", { way: "byHand" }),
    way("by hand into a plain table", { way: "plain" }),
  ];
  const [base, first] = ["by hand into our table", database === "postgres"];
  yield await compare(ground, {
    question: `outbox.add, ${ownClient[database]}, ${told(events)}`,
    store,
    sides: [...sides, way("no event", { way: "none" }), ...(first ? [way("outbox.add, listen", { way: "outbox", listen: true })] : [])],
    base,
    task: { events, database },
    minutes: first ? 1.4 : 0.6,
  });
  yield await compare(ground, {
    question: `Twenty events in one transaction, ${ownClient[database]}, ${events.toLocaleString("en")} events`,
    store,
    sides,
    base,
    task: { events, database, perCommit: 20 },
    minutes: 0.3,
  });
}

async function* withLibraries(ground: Ground, store: Place): AsyncGenerator<Finding> {
  const events = ground.size(10_000);
  for (const [library, name] of Object.entries(libraries)) {
    yield await compare(ground, {
      question: `outbox.add with ${name}, ${told(events)}`,
      store,
      sides: [
        ...ours(ground, way("outbox.add", { way: "outbox" })),
        ...(library === "drizzle"
          ? [way("by hand into our table", { way: "byHand" }), way("by hand into a plain table", { way: "plain" })]
          : []),
        way("no event", { way: "none" }),
      ],
      base: library === "drizzle" ? "by hand into our table" : "no event",
      task: { events, library },
      minutes: 0.5,
    });
  }
}
