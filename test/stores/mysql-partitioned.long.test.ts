import { afterAll, beforeAll, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type StoreSuite } from "../../src/conformance/index.ts";
import type { MysqlConnection, MysqlDatabase } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { keepsItsPromises } from "./history.ts";
import { casesOn } from "./mysql-harness.ts";

await describeWith("mariadb", "MariaDB, partitioned by day", () => {
  let server: Server;
  const cases = casesOn((database) => server.url(database), {}, { partitions: "day" });
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(async () => {
    await cases.end();
    await server[Symbol.asyncDispose]();
  });

  const suite: StoreSuite<MysqlDatabase, MysqlConnection> = {
    // Without `skip`: what this store cannot do is no lack of the machine that the tests run on.
    test: (name, body) => test(name, body),
    create: () => cases.create(),
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

  test("any history keeps the promises", () => keepsItsPromises(() => cases.create(), { numRuns: 3 }), 180_000);
});
