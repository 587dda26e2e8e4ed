import { expect, test } from "vitest";
import { fingerprints as embedded } from "../../src/brokers/embedded/schema.ts";
import { fingerprints as mysql } from "../../src/stores/mysql/schema.ts";
import { fingerprints as postgres } from "../../src/stores/postgres/schema.ts";
import { fingerprints as sqlite } from "../../src/stores/sqlite/schema.ts";
import { changed } from "./released.ts";

test("the text of a released version is never changed", () => {
  expect(changed({ postgres, mysql, sqlite, embedded })).toEqual([]);
});

test("a released version whose text changed, or is gone, is named", () => {
  const was = { one: ["a", "b"], two: ["c"], three: [] };
  expect(changed({ one: ["a", "b", "new"], two: ["c"], three: ["new"] }, was)).toEqual([]);
  expect(changed({ one: ["a", "other"], three: [] }, was)).toEqual([
    "one: the text of version 2 is not the released one",
    "two: the text of version 1 is not the released one",
  ]);
});
