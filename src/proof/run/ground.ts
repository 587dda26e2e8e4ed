import type { Ask, RunStore } from "../../contracts/adapter.ts";
import type { Added, Draft } from "../../core/event.ts";
import type { EventBuffer } from "../../outbox/outbox.ts";
import { outboxOn } from "../../outbox/opened.ts";
import type { Access } from "./access.ts";
import type { RunPlace } from "./task.ts";

/** What a writer's transaction has at hand. */
export interface WriterWork {
  readonly ask: Ask;
  /** Inserted at once. */
  add(drafts: readonly Draft[]): Promise<readonly Added[]>;
  /** Inserted last. */
  readonly events: EventBuffer;
}

/** The run's own tables in the user's database. Nothing else in that database is touched. */
export interface Ground extends AsyncDisposable, Pick<RunStore, "store" | "ask" | "within" | "remove"> {
  /** The workload's tables as they are written in SQL. */
  readonly tables: Tables;
  /** Creates the tables, and a counter for each aggregate, for the writers and for each consumer. */
  prepare(aggregates: readonly string[], consumers: readonly string[]): Promise<void>;
  /** Adds events in the transaction of a handler. */
  add(tx: unknown, drafts: readonly Draft[]): Promise<readonly Added[]>;
  /** A service's transaction: it commits when `work` resolves. */
  transaction(work: (work: WriterWork) => Promise<void>): Promise<void>;
}

interface Tables {
  /** One row for each aggregate: how many changes it has had. */
  readonly counters: string;
  /** One row for each event, written in its transaction. */
  readonly written: string;
  /** Where a transaction may write first. */
  readonly elsewhere: string;
  /** What each consumer has applied, in the order of its commits. */
  readonly effects: string;
  /** One row for each consumer and aggregate, which is locked before an effect is written. */
  readonly applied: string;
  /** The outbox table itself, since the view of it is Waybill's, and may be what is wrong. */
  readonly outbox: string;
}

const tablesBy = (table: RunStore["table"]): Tables => ({
  counters: table("counters"),
  written: table("written"),
  elsewhere: table("elsewhere"),
  effects: table("effects"),
  applied: table("applied"),
  outbox: table("outbox"),
});

function createTables(tables: Tables, { key, position, table = "" }: RunStore["dialect"]): readonly string[] {
  return [
    `CREATE TABLE ${tables.counters} (aggregate ${key} NOT NULL PRIMARY KEY, n INTEGER NOT NULL)`,
    `CREATE TABLE ${tables.written} (id ${key} NOT NULL PRIMARY KEY, aggregate ${key} NOT NULL, n INTEGER NOT NULL)`,
    `CREATE TABLE ${tables.elsewhere} (${position}, note ${key} NOT NULL)`,
    `CREATE TABLE ${tables.effects} (${position}, consumer ${key} NOT NULL, topic ${key} NOT NULL, id ${key} NOT NULL, aggregate ${key} NOT NULL, n INTEGER NOT NULL)`,
    `CREATE TABLE ${tables.applied} (consumer ${key} NOT NULL, aggregate ${key} NOT NULL, n INTEGER NOT NULL, PRIMARY KEY (consumer, aggregate))`,
  ].map((sql) => `${sql} ${table}`);
}

/** Inserts the counters at 0, a few at a time. */
async function fill(ask: Ask, tables: Tables, aggregates: readonly string[], consumers: readonly string[]): Promise<void> {
  for (let at = 0; at < aggregates.length; at += 100) {
    const some = aggregates.slice(at, at + 100);
    await ask(`INSERT INTO ${tables.counters} (aggregate, n) VALUES ${some.map(() => "(?, 0)").join(", ")}`, some);
    for (const consumer of consumers) {
      const rows = some.map(() => "(?, ?, 0)").join(", ");
      await ask(
        `INSERT INTO ${tables.applied} (consumer, aggregate, n) VALUES ${rows}`,
        some.flatMap((each) => [consumer, each]),
      );
    }
  }
}

/** The ground of a run in the database that the URL names; its tables need not be there yet. */
export async function openGround(access: Access, { store: text, run, placing }: Omit<RunPlace, "broker">): Promise<Ground> {
  const url = access.store(text);
  const opened = url.adapter.openRun(url, run, placing);
  const { store, dialect, ask, within } = opened;
  const outbox = outboxOn(opened);
  const tables = tablesBy((name) => opened.table(name));
  return {
    store,
    tables,
    ask,
    within,
    async prepare(aggregates, consumers) {
      await store.schema.migrate();
      for (const sql of createTables(tables, dialect)) await ask(sql);
      await fill(ask, tables, aggregates, consumers);
    },
    add: (tx, drafts) => outbox.add(tx as never, drafts),
    transaction: (work) =>
      outbox.transaction(null, (tx, events) => work({ ask: within(tx), add: (drafts) => outbox.add(tx, drafts), events })),
    remove: () => opened.remove(),
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  };
}

export const topicsOf = (place: RunPlace): readonly string[] => typesOf(place).map((type) => topicOf(type));
/** The topic of an aggregate's events, or of all events of a type. */
export const topicOf = (aggregate: string): string => `${aggregate.split("/")[0]!.toLowerCase()}.events`;
/** The run's aggregate types, each with a topic of its own. */
export const typesOf = ({ run }: RunPlace): readonly string[] => [`${run}-left`, `${run}-right`];
export const deadTopicOf = (topic: string): string => `${topic}.dead`;
/** Named after the run, since a consumer of the user's may be called anything. */
export const consumersOf = ({ run }: Pick<RunPlace, "run">): readonly string[] => [`${run}-shop`];
/** The consumer that reads a topic at the end. It has a place in this topic from the beginning, and in no other. */
export const readerOf = (topic: string): string => `${topic.replaceAll(".", "-")}-reader`;
