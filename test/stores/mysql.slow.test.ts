import { afterAll, beforeAll, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type StoreSuite } from "../../src/conformance/index.ts";
import type { MysqlConnection, MysqlDatabase } from "../../src/stores/mysql/index.ts";
import { describeWith, outside } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { keepsItsPromises } from "./history.ts";
import { casesOn, type MysqlCases } from "./mysql-harness.ts";

function everySuite(cases: MysqlCases): void {
  const suite: StoreSuite<MysqlDatabase, MysqlConnection> = {
    test,
    create: () => cases.create(),
    can: { claimBesideWriter: true, parallelWriters: true, loseTransaction: true },
  };
  outboxStoreSuite(suite);
  leaseStoreSuite(suite);
  inboxSuite(suite);
  operatorSuite(suite);
  schemaSuite(suite);

  test("any history keeps the promises", () => keepsItsPromises(() => cases.create(), { numRuns: 10 }), 180_000);
}

await describeWith("mariadb", "MariaDB", () => {
  let server: Server;
  const cases = casesOn((database) => server.url(database));
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(async () => {
    await cases.end();
    await server[Symbol.asyncDispose]();
  });
  everySuite(cases);
});

await describeWith("mysql", "MySQL", () => {
  const cases = casesOn((database) => outside("mysql")!.url(database));
  afterAll(() => cases.end());
  everySuite(cases);
});
