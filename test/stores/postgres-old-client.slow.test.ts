import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { draft } from "../support/outbox.ts";

/** `pg` before 8.21 has no getTransactionStatus. */
const silent = (client: pg.Client): pg.Client => Object.assign(client, { getTransactionStatus: undefined });

await describeWith("postgres", "a pg client that does not say whether its transaction is open", () => {
  let server: Postgres;
  let store: PostgresStore;
  let client: pg.Client;
  const stored = async (aggregateId: string): Promise<readonly string[]> =>
    (await store.operator.list({ aggregateId, limit: 10 })).map(({ id }) => id).reverse();
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
    store = postgres({ url: server.url() });
    await store.schema.migrate();
    client = silent(new pg.Client({ connectionString: server.url() }));
    await client.connect();
  });
  afterAll(async () => {
    await client.end();
    await store[Symbol.asyncDispose]();
    await server[Symbol.asyncDispose]();
  });

  test("is refused without BEGIN, and after COMMIT and ROLLBACK", async () => {
    const outbox = createOutbox({ store });
    const adding = () => outbox.add(client, draft("none", 1));
    await expect(adding()).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    for (const end of ["COMMIT", "ROLLBACK"]) {
      await client.query("BEGIN");
      await client.query(end);
      await expect(adding(), end).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    }
    expect(await stored("none")).toEqual([]);
  });

  test("is refused when COMMIT went before an event that nobody awaited", async () => {
    const outbox = createOutbox({ store });
    await client.query("BEGIN");
    const adding = outbox.add(client, draft("late", 1));
    const committed = client.query("COMMIT");
    await expect(adding).rejects.toMatchObject({ code: "NO_TRANSACTION" });
    await committed;
    expect(await stored("late")).toEqual([]);
  });

  test("adds between BEGIN and COMMIT, two at once too", async () => {
    const outbox = createOutbox({ store });
    const [one, two] = [draft("inside", 1), draft("inside", 2)];
    await client.query("BEGIN");
    await Promise.all([outbox.add(client, one), outbox.add(client, two)]);
    expect(await stored("inside"), "before COMMIT").toEqual([]);
    await client.query("COMMIT");
    expect([...(await stored("inside"))].sort()).toEqual([one.id, two.id].sort());
  });

  test("in a transaction that has failed, fails with the server's own words", async () => {
    const outbox = createOutbox({ store });
    await client.query("BEGIN");
    await client.query("SELECT 1 / 0").catch(() => undefined);
    await expect(outbox.add(client, draft("failed", 1))).rejects.toThrow(/current transaction is aborted/);
    await client.query("ROLLBACK");
  });

  test("is refused by outbox.transaction inside a transaction, which goes on", async () => {
    const outbox = createOutbox({ store });
    const event = draft("outer", 1);
    await client.query("BEGIN");
    await outbox.add(client, event);
    await expect(outbox.transaction(client, async () => undefined)).rejects.toMatchObject({ code: "ALREADY_IN_TRANSACTION" });
    await client.query("ROLLBACK");
    expect(await stored("outer")).toEqual([]);
    await outbox.transaction(client, async (_, events) => events.add(event));
    expect(await stored("outer")).toEqual([event.id]);
  });
});
