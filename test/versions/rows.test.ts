import { readFileSync } from "node:fs";
import { expect, test } from "vitest";
import { nameOf } from "./clients.ts";
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
