import pg from "pg";
import { afterAll, afterEach, beforeAll, expect, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type StoreSuite } from "../../src/conformance/index.ts";
import { postgres, type PgClient, type PgDatabase } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { plant } from "./planted.ts";
import { harnessOn } from "./postgres-harness.ts";

/** Every statement of the store, beside functions and operators that another role planted for all that they call. */
await describeWith("postgres14", "no suite of the store runs a planted function", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 14 });
    const admin = new pg.Client({ connectionString: server.url() });
    await admin.connect();
    await admin.query("CREATE ROLE mallory LOGIN");
    await admin.end();
    await plant(server.url().replace("postgres@", "mallory@"), postgres({ url: server.url(), partitions: "day" }).schema.print());
  });
  afterAll(() => server[Symbol.asyncDispose]());
  afterEach(() => {
    expect([...new Set(server.log().match(/PLANTED: .*/g))]).toEqual([]);
  });
  const suite: StoreSuite<PgDatabase, PgClient> = {
    test,
    create: harnessOn(
      () => `${server.url()}?options=-c%20search_path%3Dpg_catalog`,
      {},
      () => server.url(),
    ),
    can: {
      claimBesideWriter: true,
      parallelWriters: true,
      loseTransaction: true,
      commitInside: true,
      uniqueIds: true,
      hostileRows: true,
    },
  };
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);
});
