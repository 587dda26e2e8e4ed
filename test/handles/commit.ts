import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { draft } from "../support/outbox.ts";
import type { Adapter, Opened } from "./adapter.ts";
import { refused, type AnyHandle, type Ground } from "./body.ts";
import { wireTo, type Wire } from "./proxy.ts";

/** What becomes of a transaction when nobody hears what became of its COMMIT. */
export function tellsOfALostCommit(adapter: Adapter, prepare: () => Promise<Ground>): void {
  const handle = adapter.handle as AnyHandle;

  describe(`${adapter.library} on ${adapter.database}: a connection that is cut during COMMIT`, () => {
    let ground: Ground;
    let wire: Wire;
    let library: Opened;
    beforeEach(async () => {
      ground = await prepare();
      wire = await wireTo(ground.place);
      library = await adapter.open(wire.url);
    });
    afterEach(async () => {
      await library?.close().catch(() => undefined);
      await wire?.close();
      await ground?.close();
    });

    test.for([
      { when: "before", kept: 0 },
      { when: "after", kept: 1 },
    ] as const)("$when the server has it is COMMIT_UNKNOWN, with $kept kept, and is not tried again", async ({ when, kept }) => {
      const outbox = createOutbox({ store: ground.store, tx: handle });
      const run = outbox.transaction(library.db, async (tx, events) => {
        await library.run(tx, `INSERT INTO ${ground.effects} VALUES ('cut')`);
        events.add(draft("cut", 1));
        wire.cut(when);
      });
      const error = await run.then(
        () => expect.unreachable(),
        (caught: unknown) => caught as Error,
      );
      expect(error).toMatchObject({ code: "COMMIT_UNKNOWN", cause: expect.any(Error) as Error });
      expect(wire.commits()).toBe(1);
      await expect.poll(() => ground.store.operator.list({ aggregateId: "cut", limit: 10 })).toHaveLength(kept);
      await expect.poll(() => ground.readEffects()).toHaveLength(kept);
    });

    test("is COMMIT_UNKNOWN for a handler too", async () => {
      await using store = ground.through!(handle, library.db);
      const applying = store.inbox.once({ consumer: "billing", id: "e1" }, 1, async (tx) => {
        await library.run(tx, `INSERT INTO ${ground.effects} VALUES ('cut')`);
        wire.cut("before");
      });
      await expect(applying).rejects.toThrow(refused("COMMIT_UNKNOWN"));
      await expect.poll(() => ground.readEffects()).toEqual([]);
    });

    if (adapter.database !== "PostgreSQL") return;
    test("is not a COMMIT that the server refuses", async () => {
      await ground.execute(
        `CREATE FUNCTION ${ground.effects}_refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN RAISE EXCEPTION 'not this one' USING ERRCODE = '23514'; END $$;
         CREATE CONSTRAINT TRIGGER late AFTER INSERT ON ${ground.effects} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ${ground.effects}_refuse()`,
      );
      const outbox = createOutbox({ store: ground.store, tx: handle });
      const run = outbox.transaction(library.db, async (tx, events) => {
        await library.run(tx, `INSERT INTO ${ground.effects} VALUES ('refused')`);
        events.add(draft("refused", 1));
      });
      await expect(run).rejects.toThrow(/not this one|Failed query: commit/);
      await expect(run).rejects.not.toThrow(refused("COMMIT_UNKNOWN"));
      expect(await ground.store.operator.list({ aggregateId: "refused", limit: 10 })).toEqual([]);
    });
  });
}
