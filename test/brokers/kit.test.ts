import { expect, test } from "vitest";
import { unreachable } from "../../src/brokers/kit/outage.ts";
import { inTurn } from "../../src/brokers/kit/link.ts";
import { byAggregate, firsts } from "./kit/changes.ts";

test("a change counts where it came first, whatever copies come later", () => {
  const read = [1, 2, 3, 2, 4].map((n) => ({ aggregate: "a", n }));
  expect(byAggregate(firsts(read))).toEqual({ a: [1, 2, 3, 4] });
});

test("two that dial at once try every address each, and find the one that is up", async () => {
  const dial = inTurn(["down", "up"], async (address) => {
    await Promise.resolve();
    if (address === "down") throw new Error("refused");
    return address;
  });
  expect(await Promise.all([dial(), dial(), dial()])).toEqual(["up", "up", "up"]);
});

test("what a client stumbles over in an answer is told in our words, and other troubles in theirs", () => {
  const say = (error: Error): string => unreachable("amqp://host", error).message;
  const bounds = Object.assign(new RangeError("Attempt to access memory outside buffer bounds"), { code: "ERR_BUFFER_OUT_OF_BOUNDS" });
  expect(say(bounds)).toBe("amqp://host cannot be reached: it answered in a way that cannot be read");
  expect(say(new TypeError("Cannot read properties of undefined (reading 'x')"))).toContain("in a way that cannot be read");
  for (const words of ["Expected BasicDeliver or BasicReturn; got <Content channel:1 size:NaN>", 'Unexpected type tag "\u0000"'])
    expect(say(new Error(words))).toBe("amqp://host cannot be reached: it answered in a way that cannot be read");
  expect(say(new TypeError("fetch failed"))).toContain("fetch failed");
});
