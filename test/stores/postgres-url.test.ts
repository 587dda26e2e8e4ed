import { expect, test } from "vitest";
import { postgres } from "../../src/stores/postgres/index.ts";

const base = "postgres://ann:s3cret@db.test/app";

test.each([
  "",
  "?sslmode=verify-full&sslrootcert=/etc/ca.pem",
  "?sslmode=disable",
  "?application_name=billing&options=-c%20search_path%3Dapp",
  "?host=/var/run/postgresql",
])("a URL with %j is taken", (search) => {
  expect(() => postgres({ url: `${base}${search}` })).not.toThrow();
});

test.each([
  ["?ssl_mode=require", /parameter "ssl_mode"; it may have sslmode/],
  ["?sslmode=verify-fully", /sslmode is disable, .* not "verify-fully"/],
  ["?sslmode=", /sslmode must stand there once, with a value/],
  ["?sslmode=require&sslmode=disable", /sslmode must stand there once/],
  ["?schema=app", /parameter "schema"/],
  ["?password=other", /parameter "password"/],
])("a URL with %j is refused by name, without a secret", (search, why) => {
  const refused = (): unknown => postgres({ url: `${base}${search}` });
  expect(refused).toThrow(why);
  expect(refused).toThrow(expect.objectContaining({ code: "BAD_URL" }) as Error);
  expect(refused).not.toThrow(/s3cret|other/);
});

test("a URL of another database is refused", () => {
  expect(() => postgres({ url: "mysql://db.test/app" })).toThrow(/postgres:\/\/user:password@host/);
});
