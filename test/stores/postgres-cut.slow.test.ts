import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { postgresGround } from "../compositions/postgres-ground.ts";
import { nameOf, postgresWays } from "../compositions/ways.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";

const key = { consumer: "billing", id: "e1" };
/** Their handles refuse a statement that comes after the end of the transaction, unless it is in the same text. */
const refusing = ["{ url }", "{ pool }", "pg", "Drizzle (node-postgres)"];

await describeWith("postgres", "a handler that ends its transaction and then hangs loses its session on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());
  for (const way of postgresWays)
    describe.concurrent(nameOf(way), () => {
      for (const end of ["COMMIT", "ROLLBACK"])
        test(`after ${end}`, { timeout: 60_000 }, async ({ onTestFinished: finished }) => {
          const ground = await postgresGround(server.url(), way);
          finished(() => ground.close());
          let hanging: Promise<unknown> = Promise.resolve();
          const hang = async (tx: unknown): Promise<void> => {
            await ground.run(tx, "INSERT INTO effects (name) VALUES ('half')");
            const texts = refusing.includes(nameOf(way)) ? [`${end}; SELECT pg_sleep(50)`] : [end, "SELECT pg_sleep(50)"];
            for (const text of texts) await (hanging = Promise.resolve(ground.run(tx, text)).catch(() => "cut"));
          };
          const timedOut = new WaybillError("HANDLER_TIMEOUT", "the handler did not finish in time");
          await expect(ground.store.inbox.once(key, 1, (tx) => Promise.race([hang(tx), late(timedOut)]))).rejects.toBe(timedOut);
          expect(await hanging).toBe("cut");
          const again = ground.store.inbox.once(key, 1, async (tx) => void (await ground.run(tx, "SELECT 1")));
          if (end === "COMMIT") await expect(again).rejects.toMatchObject({ code: "EFFECT_UNFINISHED" });
          else expect(await again).toBe("done");
        });
    });
});

const late = (error: Error): Promise<never> => new Promise((_, reject) => setTimeout(() => reject(error), 1_000));
