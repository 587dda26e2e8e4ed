import type { SubscriberEvent } from "../../src/subscriber/event.ts";
import type { Ground } from "./ground.ts";

/** What a handler has at hand. */
export interface Hands {
  readonly ground: Ground;
  readonly tx: unknown;
  readonly event: SubscriberEvent;
  /** A statement in the event's transaction. */
  run(sql: string): Promise<unknown>;
  /** Adds a `Parcel` event of the order in the event's transaction. */
  add(): Promise<void>;
  /** Resolves when so many handlers have called it, or when others have no chance to. */
  meet(handlers: number): Promise<void>;
}

/**
 * What a handler does beside its effect.
 * - `bad`: which events it does it to; all others are applied like any.
 * - `fate`: what may become of those events. "letter": none of them has its effect, each is a letter. "applied": each has its effect once.
 *   "either": one or the other. "own": it ended its transaction by itself, so it may have its effect and be a letter as well.
 */
export interface Deed {
  readonly name: string;
  readonly bad: "one" | "two" | "all";
  readonly fate: "applied" | "letter" | "either" | "own";
  /** Events of type Parcel are added: one for each event that is applied. */
  readonly adds?: true;
  /** The sum of the shared row is the number of applied events. */
  readonly shares?: true;
  does(hands: Hands): Promise<unknown>;
}

/** One row for each thing that a handler may do. */
export const deeds: readonly Deed[] = [
  { name: "applies", bad: "one", fate: "applied", does: async () => undefined },
  { name: "adds an event", bad: "all", fate: "applied", adds: true, does: ({ add }) => add() },
  {
    name: "adds an event and throws",
    bad: "one",
    fate: "letter",
    async does({ add }) {
      await add();
      throw new Error("the handler throws after it has added an event");
    },
  },
  {
    name: "throws",
    bad: "one",
    fate: "letter",
    async does() {
      throw new Error("the handler throws");
    },
  },
  {
    name: "swallows an error",
    bad: "one",
    fate: "either",
    does: ({ run }) => run("INSERT INTO scratch (no_such_column) VALUES (1)").catch(() => undefined),
  },
  { name: "commits", bad: "one", fate: "own", does: ({ run }) => run("COMMIT") },
  { name: "rolls back", bad: "one", fate: "own", does: ({ run }) => run("ROLLBACK") },
  { name: "runs DDL", bad: "one", fate: "own", does: ({ run }) => run("CREATE TABLE IF NOT EXISTS made (name varchar(9))") },
  { name: "hangs past its time-out", bad: "one", fate: "letter", does: () => new Promise(() => undefined) },
  {
    name: "deadlocks",
    bad: "two",
    fate: "applied",
    async does({ event, run, meet }) {
      const [first, second] = event.aggregateId.endsWith("1") ? ["a", "b"] : ["b", "a"];
      await run(`UPDATE scratch SET name = name WHERE name = '${first}'`);
      await meet(2);
      await run(`UPDATE scratch SET name = name WHERE name = '${second}'`);
    },
  },
  {
    name: "updates a shared row",
    bad: "all",
    fate: "applied",
    shares: true,
    does: ({ run }) => run("UPDATE scratch_rows SET sum = sum + 1 WHERE name = 'all'"),
  },
];
