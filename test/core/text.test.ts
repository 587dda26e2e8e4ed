import { execFileSync } from "node:child_process";
import { expect, test } from "vitest";
import { asWord } from "../../src/core/text.ts";

test.each(["order.events", "a,b", "…"])("%s needs no quotes in a shell", (text) => {
  expect(asWord(text)).toBe(text);
});

test.each(['"`;--.events', "$(touch /tmp/x)", "it's", "two words", ""])("a shell takes %j as one word, and runs nothing", (text) => {
  expect(execFileSync("sh", ["-c", `printf %s ${asWord(text)}`], { encoding: "utf8" })).toBe(text);
});
