import { compare, ours, type Side } from "../measure/compare.ts";
import { databases, type Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";

const way = (name: string, task: object): Side => ({ name, side: "add", task });
const libraries = { drizzle: "Drizzle", kysely: "Kysely", knex: "Knex", typeorm: "TypeORM", prisma: "Prisma" } as const;

/** What an event adds to a transaction of the service's own. */
export async function* add(ground: Ground): AsyncGenerator<Finding> {
  const events = ground.size(10_000);
  const told = `${events.toLocaleString("en")} transactions of ten writers`;
  await using store = await databases.postgres.open(ground);
  yield await compare(ground, {
    question: `outbox.add with pg, ${told}`,
    store,
    sides: [
      ...ours(ground, way("outbox.add", { way: "outbox" })),
      way("by hand into our table", { way: "byHand" }),
      way("by hand into a plain table", { way: "plain" }),
      way("no event", { way: "none" }),
      way("outbox.add, listen", { way: "outbox", listen: true }),
    ],
    base: "by hand into our table",
    task: { events },
    minutes: 2,
  });
  yield await compare(ground, {
    question: `Twenty events in one transaction, ${events.toLocaleString("en")} events`,
    store,
    sides: [
      ...ours(ground, way("outbox.add", { way: "outbox" })),
      way("by hand into our table", { way: "byHand" }),
      way("by hand into a plain table", { way: "plain" }),
    ],
    base: "by hand into our table",
    task: { events, perCommit: 20 },
    minutes: 0.5,
  });
  for (const [library, name] of Object.entries(libraries)) {
    yield await compare(ground, {
      question: `outbox.add with ${name}, ${told}`,
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
