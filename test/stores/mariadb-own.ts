import { afterAll, beforeAll, test } from "vitest";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { casesOn, type MysqlHarness } from "./mysql-harness.ts";

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
