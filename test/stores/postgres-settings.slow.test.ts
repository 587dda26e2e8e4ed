import { afterAll, beforeAll, expect, test } from "vitest";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { harnessOn } from "./postgres-harness.ts";

const settings = {
  default_transaction_isolation: "'serializable'",
  default_transaction_deferrable: "on",
  statement_timeout: "0",
  lock_timeout: "'1h'",
  synchronous_commit: "off",
  bytea_output: "'escape'",
  DateStyle: "'German, DMY'",
  IntervalStyle: "'sql_standard'",
  TimeZone: "'Asia/Kathmandu'",
  extra_float_digits: "-15",
  standard_conforming_strings: "off",
  escape_string_warning: "on",
  search_path: "pg_catalog",
  row_security: "off",
  lc_messages: "'C'",
  enable_indexscan: "off",
  enable_seqscan: "off",
  plan_cache_mode: "'force_generic_plan'",
  transform_null_equals: "on",
  array_nulls: "off",
  quote_all_identifiers: "on",
  client_min_messages: "debug1",
  xmloption: "'document'",
  jit_above_cost: "0",
};

await describeWith("postgres", "a role of PostgreSQL with settings of its own", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const create = harnessOn(() => server.url());

  for (const [name, value] of Object.entries(settings))
    test(`under ${name} = ${value} every event is published once and in order`, async () => {
      const h = await create();
      const draft = (n: number) => ({ aggregateType: "Ordér", aggregateId: `\\é'-${n % 70}`, type: "E", headers: { back: "\\'" } });
      await createOutbox({ store: h.store }).transaction(h.db, (_tx, events) => {
        for (let n = 0; n < 200; n++) events.add({ ...draft(n), payload: n % 2 === 0 ? new Uint8Array([n, 0, 92, 255]) : { n } });
      });
      await h.pool.query(`ALTER ROLE CURRENT_USER SET ${name} = ${value}`);
      try {
        await using store = postgres({ url: server.url(), schema: h.schema });
        await store.leases.renew("r", 60_000);
        const lanes = [...(await store.leases.take("r", [...Array(64).keys()]))];
        const half = (rest: number) => ({ relay: "r", lanes: new Map(lanes.filter(([lane]) => lane % 2 === rest)) });
        const seen: unknown[] = [];
        for (let turn = 0, empty = 0; empty < 4; turn++) {
          const { id, claims, more } = await store.outbox.claim(half(turn % 2), { limit: 150, open: [], narrow: false });
          for (const { envelope, unreadable } of claims) {
            expect(unreadable).toBeUndefined();
            const n = Number(envelope.seq) - 1;
            expect(envelope).toMatchObject(draft(n));
            expect(Math.abs(envelope.createdAt.getTime() - Date.now())).toBeLessThan(600_000);
            expect([...envelope.data]).toEqual(n % 2 === 0 ? [n, 0, 92, 255] : [...Buffer.from(JSON.stringify({ n }))]);
            seen.push(n);
          }
          if (id !== null)
            await store.outbox.settle(
              "r",
              id,
              claims.map((claim) => ({ claim, as: "published" })),
            );
          else if (!more) empty += 1;
        }
        expect(new Set(seen).size).toBe(200);
        expect(seen).toHaveLength(200);
        expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("done");
        expect(await store.inbox.once({ consumer: "c", id: "1" }, 1, () => undefined)).toBe("seen");
        expect((await store.operator.status()).states.PUBLISHED).toBe(200);
      } finally {
        await h.pool.query(`ALTER ROLE CURRENT_USER RESET ${name}`);
        await h.close();
      }
    });

  test("every claim and settle is durable where the role's commits are not", async () => {
    const h = await create();
    await h.pool.query(`
      CREATE FUNCTION ${h.schema}.refuse() RETURNS trigger LANGUAGE plpgsql AS $$
      BEGIN
        IF current_setting('synchronous_commit') = 'off' THEN RAISE EXCEPTION 'a commit that is not durable'; END IF;
        RETURN NULL;
      END $$;
      CREATE CONSTRAINT TRIGGER refuse AFTER INSERT OR UPDATE OR DELETE ON ${h.schema}.waybill_windows
      DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION ${h.schema}.refuse()`);
    await h.pool.query("ALTER ROLE CURRENT_USER SET synchronous_commit = off");
    try {
      await using store = postgres({ url: server.url(), schema: h.schema });
      await store.leases.renew("r", 60_000);
      const holding = { relay: "r", lanes: await store.leases.take("r", [...Array(64).keys()]) };
      for (let n = 0; n < 5; n++) {
        const draft = { aggregateType: "Order", aggregateId: "1", type: "E", payload: { n } };
        await createOutbox({ store: h.store }).transaction(h.db, (_tx, events) => void events.add(draft));
        const { id, claims } = await store.outbox.claim(holding, { limit: 10, open: [], narrow: false });
        const outcomes = claims.map((claim) => ({ claim, as: "published" }) as const);
        expect((await store.outbox.settle("r", id!, outcomes)).settled).toBe(1);
      }
    } finally {
      await h.pool.query("ALTER ROLE CURRENT_USER RESET synchronous_commit");
      await h.close();
    }
  });
});
