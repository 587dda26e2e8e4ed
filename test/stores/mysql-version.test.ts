import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { needed, refuseOld } from "../../src/stores/mysql/schema.ts";

test.each([
  ["8.0.18", false],
  ["5.7.44", false],
  ["10.5.22-MariaDB", true],
  ["5.5.5-10.5.22-MariaDB-log", true],
])("a migration refuses %s, which does not have its statements", (version, mariadb) => {
  expect(() => refuseOld({ version, mariadb }, "mysql://host/db")).toThrow(expect.objectContaining({ code: "UNSUPPORTED" }));
});

test.each([
  ["8.0.19", false],
  ["8.0.36-0ubuntu0.22.04.1", false],
  ["8.4.0", false],
  ["9.1.0", false],
  ["10.6.0-MariaDB", true],
  ["5.5.5-10.11.6-MariaDB-0+deb12u1", true],
  ["11.4.2-MariaDB", true],
])("a migration takes %s", (version, mariadb) => refuseOld({ version, mariadb }, "mysql://host/db"));

test("docs/mysql.md has the versions that the code checks", () => {
  expect(readFileSync(new URL("../../docs/mysql.md", import.meta.url), "utf8")).toContain(needed);
});
