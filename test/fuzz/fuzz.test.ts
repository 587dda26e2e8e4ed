import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { readKept } from "./kept.ts";
import { messagesOf } from "./messages.ts";
import { rowsOf, tellRow } from "./rows.ts";
import type { Target } from "./target.ts";
import { openBroker, openStore } from "./targets.ts";

describe.each([
  ["sqlite", () => openStore("sqlite")],
  ["embedded", () => openBroker("embedded")],
] as const)("hostile input to %s", (name, open) => {
  let target: Target;
  beforeAll(async () => {
    target = await open();
  });
  afterAll(() => target[Symbol.asyncDispose]());

  test.each([...readKept(name).map(({ seed }) => seed), 1, 2, 3, 4])(
    "ends visible, and good input flows beside it: seed %i",
    async (seed) => {
      await target.round(seed);
    },
  );
});

test("one seed is one input", () => {
  expect(rowsOf(7, "postgres", 9).map(tellRow)).toEqual(rowsOf(7, "postgres", 9).map(tellRow));
  expect(rowsOf(7, "postgres", 9).map(tellRow)).not.toEqual(rowsOf(8, "postgres", 9).map(tellRow));
  expect(messagesOf(7, "kafka", 9)).toEqual(messagesOf(7, "kafka", 9));
});
