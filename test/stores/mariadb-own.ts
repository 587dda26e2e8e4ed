import { afterAll, beforeAll, test } from "vitest";
import type { ServerName } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startMysql } from "../servers/mysql.ts";
import type { Server, Settings } from "../servers/server.ts";
import { casesOn, type MysqlHarness } from "./mysql-harness.ts";

interface Kind {
  readonly name: ServerName;
  readonly title: "MariaDB" | "MySQL";
  start(options?: { settings?: Settings }): Promise<Server>;
}

/** What a test of both runs on: `for (const { name, title, start } of both) await describeWith(name, …)`. */
export const both: readonly Kind[] = [
  { name: "mariadb", title: "MariaDB", start: startMariadb },
  { name: "mysql", title: "MySQL", start: startMysql },
];

interface OwnMariadb {
  readonly server: Server;
  readonly cases: ReturnType<typeof casesOn>;
  /** A test with tables of its own. */
  own(name: string, body: (harness: MysqlHarness) => Promise<void>): void;
}

/** A server for the tests of one `describe`: MariaDB, or what `start` starts. */
export function ownMariadb(start: () => Promise<Server> = startMariadb): OwnMariadb {
  let server: Server;
  const cases = casesOn((database) => server.url(database));
  beforeAll(async () => {
    server = await start();
  });
  afterAll(async () => {
    await cases.end();
    await server[Symbol.asyncDispose]();
  });
  return {
    get server() {
      return server;
    },
    cases,
    own: (name, body) =>
      test(name, async () => {
        const harness = await cases.create();
        try {
          await body(harness);
        } finally {
          await harness.close();
        }
      }),
  };
}
