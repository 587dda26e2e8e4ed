import { execFile } from "node:child_process";
import { promisify } from "node:util";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeAll, expect, test } from "vitest";
import { built, cli, until } from "./cli/build.ts";
import { cleanUp, node, patienceMs, place, programsOf, read } from "./docs-programs.ts";
import { starts } from "./quick-start/servers.ts";
import { describeWith } from "./servers/available.ts";
import { startPostgres } from "./servers/postgres.ts";

beforeAll(() => built());
afterEach(cleanUp);

for (const [name, start] of Object.entries(starts) as [keyof typeof starts, (typeof starts)[keyof typeof starts]][])
  await describeWith(["postgres", name], `the page on ${name}`, () => {
    test("its program takes an event from PostgreSQL to its handler, and ends with SIGTERM", async () => {
      await using database = await startPostgres({ version: 15 });
      await using server = await start();
      const store = ["--store", database.url()];
      expect(await cli(["migrate", ...store], { cwd: tmpdir() })).toMatchObject({ code: 0 });
      const event = ["--aggregate-type", "Order", "--aggregate-id", "o-1", "--type", "OrderPlaced", "--payload", "{}"];
      expect(await cli(["events", "add", ...store, ...event], { cwd: tmpdir() })).toMatchObject({ code: 0 });
      // Only the server is another than the page's.
      const programs = new Map(
        [...programsOf(`${name}.md`)].map(([file, code]) => [
          file,
          code.replace(/(?<=url: )"[a-z]+:\/\/[^"]+"/, JSON.stringify(server.url())),
        ]),
      );
      expect([...programs.keys()]).toEqual([`on-${name}.ts`]);
      const { child, ended } = node([join(place(programs), `on-${name}.js`)], process.cwd(), { DATABASE_URL: database.url() });
      let out = "";
      child.stdout!.on("data", (text: string) => (out += text));
      await until(() => out.includes("reserved for order o-1\n"), patienceMs);
      if (name === "redis") await commandsOf("redis.md", server.port);
      child.kill("SIGTERM");
      expect(await Promise.race([ended, new Promise((resolve) => setTimeout(resolve, 5_000, "still runs"))])).toMatchObject({ code: 0 });
    });
  });

/** What a person types to look at the stream. */
async function commandsOf(page: string, port: number): Promise<void> {
  const lines = [...read(page).matchAll(/^redis-cli (.*)$/gm)].map(([, words = ""]) => words.split(" "));
  expect(lines).toHaveLength(2);
  const [range, groups] = await Promise.all(lines.map((words) => promisify(execFile)("redis-cli", ["-p", String(port), ...words])));
  expect(range!.stdout).toContain("ce_id");
  expect(groups!.stdout).toContain("inventory");
}
