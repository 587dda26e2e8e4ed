import { execFile } from "node:child_process";
import { readFileSync } from "node:fs";
import { promisify } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";

const run = promisify(execFile);

await describeWith("mariadb", "the docs on MariaDB", () => {
  let server: Server;
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(() => server[Symbol.asyncDispose]());

  test("the one-liners of the docs add an event and show its state", async () => {
    await using store = mysql({ url: server.url() });
    await store.schema.migrate();
    const page = readFileSync(new URL("../../docs/sql.md", import.meta.url), "utf8");
    const lines = [...page.matchAll(/^mariadb .*$/gm)].map(([line]) => line);
    expect(lines.length).toBeGreaterThanOrEqual(3);
    const { port, pathname } = new URL(server.url());
    const env = { ...process.env, DATABASE_ARGUMENTS: `--no-defaults -h127.0.0.1 -P${port} -uroot ${pathname.slice(1)}` };
    const answers: string[] = [];
    for (const line of lines) answers.push((await run("sh", ["-c", line], { env })).stdout);
    expect(answers[1]).toContain("1\torder-1\tOrderPlaced\tPENDING");
    expect(answers[2]).toContain("PENDING\t1");
  });
});
