import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { draft } from "../support/outbox.ts";
import type { Adapter, Opened } from "./adapter.ts";
import { refused, type AnyHandle, type Ground } from "./body.ts";

/** Libraries whose transactions Waybill cannot take back before they end. */
const unguarded = ["Knex", "Sequelize", "MikroORM", "Prisma"];

/**
 * The last statement of ours in an event's transaction, in that of several events, and in one of `outbox.transaction`; and what undoes the
 * transaction behind it although the library's COMMIT then succeeds. MySQL does so itself to the victim of a deadlock.
 */
const onPostgres = { event: /waybill_finish/, batch: /CLOSE waybill_batch/, outbox: /xact_id_if_assigned/, undo: "SELECT 1 / 0" };
const onMysql = { event: /SET finished = 1/, batch: /SET finished = 1/, outbox: /RELEASE SAVEPOINT/, undo: "ROLLBACK" };

/** A statement that nobody awaits, between Waybill's last statement and the library's COMMIT. */
export function survivesLooseStatements(adapter: Adapter, prepare: () => Promise<Ground>): void {
  const own = adapter.handle as AnyHandle;
  const isPostgres = adapter.database === "PostgreSQL";
  const { undo, ...last } = isPostgres ? onPostgres : onMysql;
  const guards = !unguarded.includes(adapter.library);
  /** postgres.js rolls back by itself when it has heard of the failure in time. */
  const told = adapter.library.includes("postgres.js") ? /division by zero/ : refused("TRANSACTION_LOST");

  describe(`${adapter.library} on ${adapter.database}: a statement behind the last one`, () => {
    let ground: Ground;
    let library: Opened;
    beforeEach(async () => {
      ground = await prepare();
      library = await adapter.open(ground.place);
    });
    afterEach(async () => {
      await library?.close();
      await ground?.close();
    });

    /** Runs `then` once, behind the statement of ours that `marks` matches: `reach` runs one by the way that Waybill has itself. */
    const behind = (marks: RegExp, then: (reach: (sql: string) => Promise<unknown>) => PromiseLike<unknown>): AnyHandle => {
      let due = true;
      const hooked = (tx: unknown): ReturnType<AnyHandle> => {
        const { query } = own(tx);
        return {
          async query(sql, values) {
            const answer = await query(sql, values);
            if (due && marks.test(sql)) {
              due = false;
              await (async () => then((loose) => query(loose, [])))().catch(() => undefined);
            }
            return answer;
          },
        };
      };
      return Object.assign(hooked, { begin: own.begin });
    };
    const effect = (tx: unknown, name: string): PromiseLike<unknown> => library.run(tx, `INSERT INTO ${ground.effects} VALUES ('${name}')`);
    const effects = async (): Promise<readonly string[]> => [...(await ground.readEffects())].sort();
    const key = { consumer: "billing", id: "e1" };

    test("that undoes an event fails it, and its next attempt applies it", async () => {
      await using store = ground.through!(
        behind(last.event, (reach) => reach(undo)),
        library.db,
      );
      const apply = (): Promise<string> => store.inbox.once(key, 1, async (tx) => void (await effect(tx, "e1")));
      await expect(apply()).rejects.toThrow(told);
      expect(await effects()).toEqual([]);
      expect(await apply()).toBe("done");
      expect(await effects()).toEqual(["e1"]);
    });

    test("that undoes a batch fails it", async () => {
      await using store = ground.through!(
        behind(last.batch, (reach) => reach(undo)),
        library.db,
      );
      const apply = (): Promise<string> =>
        store.inbox.once({ ...key, also: ["e2", "e3"] }, 1, async (tx, fresh, next) => {
          for (const id of [...fresh].sort()) {
            await next([id]);
            await effect(tx, id);
          }
        });
      await expect(apply()).rejects.toThrow(told);
      expect(await effects()).toEqual([]);
      expect(await apply()).toBe("done");
      expect(await effects()).toEqual(["e1", "e2", "e3"]);
    });

    test(`${guards ? "is refused" : "is found"} when the handler sends it`, async () => {
      let lent: unknown;
      await using store = ground.through!(
        behind(last.event, () => library.run(lent, undo)),
        library.db,
      );
      const applying = store.inbox.once(key, 1, async (tx) => void (await effect((lent = tx), "e1")));
      if (guards) expect(await applying).toBe("done");
      else await expect(applying).rejects.toThrow(refused("TRANSACTION_LOST"));
      expect(await effects()).toEqual(guards ? ["e1"] : []);
    });

    // Nothing shows it on MySQL, as docs/transactions.md says.
    if (guards || isPostgres)
      test("is refused or found in outbox.transaction", async () => {
        let lent: unknown;
        const hooked = behind(last.outbox, () => library.run(lent, undo));
        const outbox = createOutbox({ store: ground.store, tx: hooked });
        const run = outbox.transaction(library.db, async (tx, events) => {
          await effect((lent = tx), "own");
          events.add(draft("own", 1));
        });
        if (guards) await run;
        else await expect(run).rejects.toThrow(refused("TRANSACTION_LOST"));
        expect(await ground.store.operator.list({ aggregateId: "own", limit: 10 })).toHaveLength(guards ? 1 : 0);
        expect(await effects()).toEqual(guards ? ["own"] : []);
      });

    if (!isPostgres) return;
    test("that undoes outbox.transaction makes it fail, with an event and without", async () => {
      const outboxes = [
        createOutbox({ store: ground.store, tx: behind(last.outbox, (reach) => reach(undo)) }),
        createOutbox({ store: ground.store, tx: behind(last.outbox, (reach) => reach(undo)) }),
        createOutbox({
          store: ground.through!(
            behind(last.outbox, (reach) => reach(undo)),
            library.db,
          ),
        }),
      ];
      for (const [n, outbox] of outboxes.entries()) {
        const run = outbox.transaction(library.db, async (tx, events) => {
          await effect(tx, "lost");
          if (n !== 1) events.add(draft("lost", 1));
        });
        await expect(run).rejects.toThrow(told);
      }
      expect(await ground.store.operator.list({ aggregateId: "lost", limit: 10 })).toEqual([]);
      expect(await effects()).toEqual([]);
    });
  });
}
