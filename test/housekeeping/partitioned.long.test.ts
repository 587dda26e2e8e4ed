import { afterAll, beforeAll, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type StoreSuite } from "../../src/conformance/index.ts";
import type { PgClient, PgDatabase } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { keepsItsPromises } from "../stores/history.ts";
import { harnessOn } from "../stores/postgres-harness.ts";

await describeWith("postgres", "postgres 15, partitioned by day", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15 });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const create = harnessOn(() => server.url(), { partitions: "day" });
  const suite: StoreSuite<PgDatabase, PgClient> = {
    // Without `skip`: what this store cannot do is no lack of the machine that the tests run on.
    test: (name, body) => test(name, body),
    create,
    can: {
      claimBesideWriter: true,
      parallelWriters: true,
      loseTransaction: true,
      commitInside: true,
      uniqueIds: false,
      hostileRows: true,
    },
  };
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);

  test("any history keeps the promises", () => keepsItsPromises(create, { numRuns: 4 }), 120_000);
});
