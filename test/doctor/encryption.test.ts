import { mkdtempSync, readFileSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { expect, test } from "vitest";
import { brokerUrl, storeUrl } from "../../src/cli/url.ts";
import { examineWay } from "../../src/doctor/examine.ts";
import type { Finding } from "../../src/core/finding.ts";
import { inProcess } from "../cli/in-process.ts";

const of = (text: string, env: Readonly<Record<string, string>> = {}): Finding | null => {
  const { adapter } = /^(postgres|mysql|mariadb|sqlite)/.test(text) ? storeUrl(text) : brokerUrl(text);
  return examineWay("store", text, adapter, env)[0] ?? null;
};

test.each([
  "postgres://ann:s3cret@db.test/app",
  "postgresql://ann:s3cret@10.0.0.7:5432/app?sslmode=disable",
  "mysql://ann:s3cret@db.test/app",
  "mariadb://ann:s3@cr@et@db.test:3306/app",
  "kafka://127.0.0.1:9092,b.test:9092",
  "kafka://ann:s3cret@b.test?sasl=plain",
  "amqp://ann:s3cret@mq.test",
  "nats://s3cret@n.test",
  "redis://:s3cret@[2001:db8::1]:6379/0",
  "redis://localhost.evil.test",
])("V: plain text to another machine is told, with the way out and without the password: %s", (url) => {
  const found = of(url)!;
  expect(found).toMatchObject({ setting: "encryption", verdict: "unknown", value: expect.stringMatching(/^none, to /) as string });
  expect(found.why).toMatch(/sslmode=verify-full|kafkas:|amqps:|tls:|rediss:/);
  expect(JSON.stringify(found)).not.toMatch(/s3|cr@et/);
});

test.each(["postgres://db.test/app?sslmode=no-verify", "mysql://db.test/app?sslmode=no-verify"])(
  "V: encryption that verifies nobody is told: %s",
  (url) => {
    expect(of(url)).toMatchObject({ verdict: "unknown", value: "not verified, to db.test" });
  },
);

test.each([
  ["postgres://db.test/app?sslmode=require", "verified"],
  ["postgres://db.test/app?sslmode=verify-full", "verified"],
  ["mysql://db.test/app?sslrootcert=/ca.pem", "verified"],
  ["kafkas://b.test", "verified"],
  ["kafka://b.test?tls=true", "verified"],
  ["amqps://mq.test", "verified"],
  ["tls://n.test", "verified"],
  ["rediss://r.test", "verified"],
  ["postgres://ann:s3cret@localhost/app", "not needed"],
  ["postgres://%2Fvar%2Frun%2Fpostgresql/app", "not needed"],
  ["mysql://127.0.0.1/app", "not needed"],
  ["redis://[::1]:6379", "not needed"],
  ["amqp://127.0.0.1:5672,localhost:5673", "not needed"],
])("%s is %s", (url, value) => {
  expect(of(url)).toMatchObject({ verdict: "good", value });
});

test("the environment of PostgreSQL's client counts, and a file needs none", () => {
  expect(of("postgres://db.test/app", { PGSSLMODE: "require" })).toMatchObject({ verdict: "good" });
  expect(of("postgres://db.test/app?sslmode=disable", { PGSSLMODE: "require" })).toMatchObject({ verdict: "unknown" });
  expect(of("mysql://db.test/app", { PGSSLMODE: "require" })).toMatchObject({ verdict: "unknown" });
  expect([of("sqlite:./a.db"), of("embedded:./b.db")]).toEqual([null, null]);
});

test("V: doctor tells it before it connects, and docs/doctor.md has it", async () => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-doctor-"));
  try {
    const store = `sqlite:${join(folder, "app.db")}`;
    expect(await inProcess(["migrate", "--store", store], { cwd: folder })).toMatchObject({ code: 0 });
    const { stdout } = await inProcess(["doctor", "--store", store, "--broker", "redis://nowhere.invalid:1", "--json"], { cwd: folder });
    const { findings } = JSON.parse(stdout) as { findings: object[] };
    expect(findings).toContainEqual(expect.objectContaining({ of: "broker", setting: "encryption", value: "none, to nowhere.invalid" }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
  const page = readFileSync(new URL("../../docs/doctor.md", import.meta.url), "utf8");
  expect(page).toMatch(/^\| `encryption` \|/m);
});
