import { afterAll, beforeAll, expect, test } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import { fromPg } from "../../src/outbox/handles/index.ts";
import { postgres, type PgClient } from "../../src/stores/postgres/index.ts";
import type { Inbox } from "../../src/contracts/inbox.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const key = { consumer: "billing", id: "e1" };

await describeWith("postgres", "a handler whose query hangs on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const create = harnessOn(() => server.url());
  const ways: [string, (harness: PostgresHarness) => Inbox<PgClient>][] = [
    ["the store's own client", ({ store }) => store.inbox],
    ["a library's handle", ({ pool, schema }) => postgres({ pool, schema, tx: fromPg, db: pool }).inbox],
  ];
  for (const [way, inboxOf] of ways)
    test(`fails by itself, and keeps neither its event nor a connection (${way})`, async () => {
      const harness = await create();
      const inbox = inboxOf(harness);
      let hanging: Promise<unknown> = Promise.resolve();
      const hang = async (tx: PgClient): Promise<void> => {
        await harness.effect(tx, "half");
        hanging = tx.query("SELECT pg_sleep(50)").catch(() => "cut");
        await tx.query("SELECT 1").catch(() => undefined);
      };
      const timedOut = new WaybillError("HANDLER_TIMEOUT", "the handler did not finish in time");
      await expect(inbox.once(key, 1, (tx) => Promise.race([hang(tx), late(timedOut)]))).rejects.toBe(timedOut);
      expect(await hanging).toBe("cut");
      expect(await inbox.once(key, 1, (tx) => harness.effect(tx, "whole"))).toBe("done");
      expect(await harness.effects()).toEqual(["whole"]);
      await harness.close();
    });
});

const late = (error: Error): Promise<never> => new Promise((_, reject) => setTimeout(() => reject(error), 200));
