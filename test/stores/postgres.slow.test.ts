import { afterAll, beforeAll, describe, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type StoreSuite } from "../../src/conformance/index.ts";
import type { PgClient, PgDatabase } from "../../src/stores/postgres/index.ts";
import { describeWith, outside, type ServerName } from "../servers/available.ts";
import { startPgBouncer } from "../servers/pgbouncer.ts";
import { startPostgres, type PostgresVersion } from "../servers/postgres.ts";
import { keepsItsPromises } from "./history.ts";
import { harnessOn } from "./postgres-harness.ts";

/** All suites on one server; what lies between the store and the server comes with it. */
async function suites(names: readonly ServerName[], title: string, version: PostgresVersion, runs: number): Promise<void> {
  await describeWith(names, title, () => {
    const servers: AsyncDisposable[] = [];
    let url = "";
    beforeAll(async () => {
      const server = await startPostgres({ version });
      servers.push(server);
      url = server.url();
      if (names.includes("pgbouncer")) {
        const bouncer = await startPgBouncer(server);
        servers.unshift(bouncer);
        url = bouncer.url();
      }
    });
    afterAll(async () => {
      for (const server of servers) await server[Symbol.asyncDispose]();
    });

    everySuite(() => url, runs);
  });
}

function everySuite(url: () => string, runs: number): void {
  const create = harnessOn(url);
  const suite: StoreSuite<PgDatabase, PgClient> = {
    test,
    create,
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
  test("any history keeps the promises", () => keepsItsPromises(create, { numRuns: runs }));
}

await suites(["postgres"], "postgres 15", 15, 10);
await suites(["postgres14"], "postgres 14", 14, 2);
await suites(["postgres18"], "postgres 18", 18, 2);
await suites(["postgres", "pgbouncer"], "postgres 15 through PgBouncer in transaction mode", 15, 2);

const away = outside("postgres");
if (away !== null) describe("postgres at WAYBILL_TEST_POSTGRES_URL", () => everySuite(() => away.url(), 2));
