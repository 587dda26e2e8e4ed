import { afterAll, beforeAll, describe, expect, onTestFinished, test } from "vitest";
import { effectCases } from "../../src/conformance/inbox-effects.ts";
import type { StoreHarness } from "../../src/conformance/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn } from "../stores/postgres-harness.ts";
import type { Adapter, Opened } from "./adapter.ts";
import type { AnyHandle } from "./body.ts";
import { drizzleOnNodePostgres, drizzleOnPostgresJs } from "./libraries/drizzle.ts";
import { knexOnPostgres } from "./libraries/knex.ts";
import { kyselyOnPostgres } from "./libraries/kysely.ts";
import { mikroOrmOnPostgres } from "./libraries/mikro-orm.ts";
import { onPg } from "./libraries/pg.ts";
import { onPostgresJs } from "./libraries/postgres-js.ts";
import { prismaOn } from "./libraries/prisma.ts";
import { sequelizeOnPostgres } from "./libraries/sequelize.ts";
import { typeormOnPostgres } from "./libraries/typeorm.ts";
import { present } from "./optional.ts";

const adapters = present([
  onPg,
  onPostgresJs,
  kyselyOnPostgres,
  drizzleOnNodePostgres,
  drizzleOnPostgresJs,
  knexOnPostgres,
  typeormOnPostgres,
  sequelizeOnPostgres,
  mikroOrmOnPostgres,
  await prismaOn("PostgreSQL"),
]);

await describeWith("postgres", "an inbox in the transactions of a library", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  for (const adapter of adapters)
    describe(adapter.library, () => {
      effectCases({
        test,
        create: () => harnessIn(adapter, server.url()),
        can: {
          claimBesideWriter: true,
          parallelWriters: true,
          loseTransaction: false, // what comes behind its end may be kept: see below
          commitInside: true,
          uniqueIds: true,
          hostileRows: true,
        },
      });

      test("an event whose handler ends its transaction and returns is not applied again", async () => {
        const { store, effects, lose, effect, close } = await harnessIn(adapter, server.url());
        onTestFinished(close);
        const once = (id: string): Promise<unknown> => store.inbox.once({ consumer: "billing", id }, 1, (tx) => effect(tx, id));
        const alone = store.inbox.once({ consumer: "billing", id: "a" }, 1, (tx) => lose!(tx));
        await expect(alone).rejects.toMatchObject({ code: "TRANSACTION_LOST" });
        await expect(once("a")).rejects.toMatchObject({ code: "EFFECT_UNFINISHED" });
        const together = store.inbox.once({ consumer: "billing", id: "b", also: ["c", "d", "e"] }, 1, async (_tx, _fresh, next) => {
          await effect(await next(["b"]), "b");
          await lose!(await next(["c", "d"]));
          await next(["e"]);
        });
        // These handles refuse what comes behind the end: nothing of it was kept.
        const refuses = ["pg", "Drizzle (node-postgres)"].includes(adapter.library);
        await expect(together).rejects.toMatchObject({ code: refuses ? "NO_TRANSACTION" : "TRANSACTION_LOST" });
        for (const id of refuses ? [] : ["c", "d"]) await expect(once(id)).rejects.toMatchObject({ code: "EFFECT_UNFINISHED" });
        const applied = refuses ? ["b", "c", "d", "e"] : ["b", "e"];
        for (const id of applied) expect(await once(id)).toBe("done");
        expect(await effects()).toEqual(applied);
      });
    });
});

/** The store's own harness, with every transaction of users and handlers in the library's. */
async function harnessIn(adapter: Adapter, url: string): Promise<StoreHarness<unknown, unknown>> {
  const base = await harnessOn(() => url)();
  const library = await adapter.open(url);
  const store = postgres({ pool: base.pool, clock: base.storeClock, schema: base.schema, tx: adapter.handle as AnyHandle, db: library.db });
  return {
    ...base,
    store,
    db: library.db,
    begin: () => begin(library),
    effect: async (tx, name) => void (await library.run(tx, `INSERT INTO ${base.schema}.effects (name) VALUES ('${name}')`)),
    lose: async (tx) => void (await library.run(tx, "ROLLBACK")),
    commitInside: async (tx) => void (await library.run(tx, "COMMIT")),
    async close() {
      await library.close();
      await store[Symbol.asyncDispose]();
      await base.close();
    },
  };
}

/** A transaction whose end is told from outside. */
async function begin(library: Opened): ReturnType<StoreHarness<unknown, unknown>["begin"]> {
  const undo = new Error("undone");
  let end = (_failure: Error | null): void => undefined;
  const ended = new Promise<void>((resolve, reject) => {
    end = (failure) => (failure === null ? resolve() : reject(failure));
  });
  let over: Promise<void> | undefined;
  const tx = await new Promise<unknown>((resolve, reject) => {
    over = library.transaction(async (begun) => {
      resolve(begun);
      await ended;
    });
    over.catch(reject);
  });
  return {
    tx,
    async commit() {
      end(null);
      await over;
    },
    async rollback() {
      end(undo);
      await over?.catch((error: unknown) => {
        if (error !== undo) throw error;
      });
    },
  };
}
