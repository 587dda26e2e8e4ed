import { expect, test } from "vitest";
import { createBag } from "../../src/core/bag.ts";

const thing = (name: string): { readonly name: string; place: number } => ({ name, place: 0 });

test("a bag holds what was put and not removed, whichever goes first", () => {
  const bag = createBag<ReturnType<typeof thing>>();
  const [a, b, c, d] = [thing("a"), thing("b"), thing("c"), thing("d")];
  for (const each of [a, b, c, d]) bag.put(each);
  expect([bag.remove(a), bag.remove(d), bag.remove(a)]).toEqual([true, true, false]);
  expect(
    bag
      .things()
      .map(({ name }) => name)
      .sort(),
  ).toEqual(["b", "c"]);
  expect([bag.remove(b), bag.remove(c), bag.remove(c)]).toEqual([true, true, false]);
  bag.put(a);
  expect(bag.things()).toEqual([a]);
});
