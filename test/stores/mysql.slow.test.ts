import { afterAll, describe, test } from "vitest";
import { inboxSuite, leaseStoreSuite, operatorSuite, outboxStoreSuite, schemaSuite, type StoreSuite } from "../../src/conformance/index.ts";
import type { MysqlConnection, MysqlDatabase } from "../../src/stores/mysql/index.ts";
import { describeWith, outside } from "../servers/available.ts";
import { startMysql } from "../servers/mysql.ts";
import { keepsItsPromises } from "./history.ts";
import { ownMariadb } from "./mariadb-own.ts";
import { casesOn, type MysqlCases } from "./mysql-harness.ts";

function everySuite(cases: MysqlCases): void {
  const suite: StoreSuite<MysqlDatabase, MysqlConnection> = {
    test,
    create: () => cases.create(),
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

  test("any history keeps the promises", () => keepsItsPromises(() => cases.create(), { numRuns: 10 }));
}

await describeWith("mariadb", "MariaDB", () => {
  everySuite(ownMariadb().cases);
});

await describeWith("mysql", "MySQL", () => {
  everySuite(ownMariadb(startMysql).cases);
});

const away = outside("mysql");
describe.runIf(away !== null)("the server that WAYBILL_TEST_MYSQL_URL names", () => {
  const cases = casesOn((database) => away!.url(database));
  afterAll(() => cases.end());
  everySuite(cases);
});
