import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { nameOf } from "./clients.ts";
import { countsIn } from "./counts.ts";
import { versionRows } from "./table.ts";

const { peerDependencies: peers } = JSON.parse(readFileSync(new URL("../../package.json", import.meta.url), "utf8")) as {
  peerDependencies: Readonly<Record<string, string>>;
};

test("each client that a user may bring has a row with its oldest version and one with its newest, or a row that says why not", () => {
  for (const age of ["oldest", "newest"]) {
    const rows = versionRows.filter(({ name }) => name.endsWith(`, ${age}`) && !/^(NATS|RabbitMQ|Valkey),/.test(name));
    const clients = rows.map(({ name, clients = [`${name.split(",")[0]!}@`] }) => nameOf(clients[0]!));
    expect(clients.sort(), age).toEqual(Object.keys(peers).sort());
  }
});

test("the oldest version of a client is in the range that package.json admits", () => {
  const numbers = (version: string): readonly number[] => version.split(".").map(Number);
  for (const { name, clients } of versionRows) {
    if (clients === undefined || !name.endsWith(", oldest")) continue;
    const [first] = clients;
    const [least, version] = [peers[nameOf(first!)]!.slice(2), first!.slice(first!.lastIndexOf("@") + 1)];
    const [a, b] = [numbers(least), numbers(version)];
    const at = a.findIndex((number, place) => number !== b[place]);
    expect(at === -1 || b[at]! > a[at]!, name).toBe(true);
  }
});

test("no two rows have the same name", () => {
  const names = versionRows.map(({ name }) => name);
  expect(new Set(names).size).toBe(names.length);
});

const reported = (status: string, ...tests: readonly string[]): object => ({
  status,
  name: "/tree/test/a.test.ts",
  assertionResults: tests.map((each) => ({ status: each, fullName: `${each} one` })),
});
const counted = (...files: readonly object[]): object => countsIn(JSON.stringify({ testResults: files }), "/tree");

test("a row counts its tests, and a file that failed outside them", () => {
  expect(counted(reported("failed", "passed", "failed", "pending", "skipped"), reported("failed", "passed"))).toEqual({
    ...{ passed: 2, failed: 2, skipped: 1 },
    failures: ["failed one", "test/a.test.ts"],
  });
});

test.each([
  ["no file", () => counted(), "no test ran"],
  ["only tests that are left out", () => counted(reported("passed", "skipped", "pending")), "no test ran"],
  ["no report", () => countsIn(null, "/tree"), "the tests ended without a report"],
])("a row that ran no test has failed: %s", (_, result, why) => {
  expect(result()).toMatchObject({ passed: 0, failed: 1, failures: [why] });
});
