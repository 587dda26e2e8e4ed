import { expect, test } from "vitest";
import { createMutex } from "../../src/core/queue.ts";

test("work under a mutex runs one after the other, urgent work before what waits, and a failure stops no other work", async () => {
  const mutex = createMutex();
  const done: string[] = [];
  const work = (name: string) => async (): Promise<string> => {
    done.push(`${name} begins`);
    await Promise.resolve();
    done.push(`${name} ends`);
    if (name === "fails") throw new Error(name);
    return name;
  };
  const results = await Promise.allSettled([
    mutex.run(work("first")),
    mutex.run(work("fails")),
    mutex.run(work("last")),
    mutex.run(work("urgent"), "urgent"),
    mutex.run(work("urgent too"), "urgent"),
  ]);
  const order = ["first", "urgent", "urgent too", "fails", "last"];
  expect(done).toEqual(order.flatMap((name) => [`${name} begins`, `${name} ends`]));
  expect(results.map(({ status }) => status)).toEqual(["fulfilled", "rejected", "fulfilled", "fulfilled", "fulfilled"]);
  expect(await mutex.run(work("later"))).toBe("later");
});
