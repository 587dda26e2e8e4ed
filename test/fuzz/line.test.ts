import { expect, test } from "vitest";
import { damageOf } from "./line/damage.ts";
import { fewest } from "./line/fewest.ts";

const frame = (n: number): Buffer => Buffer.from([0x44, 0, 0, 0, 8, n >> 8, n & 255, n & 255, n & 255]);
const all = Array.from({ length: 200 }, (_, n) => n);

/** What arrives when so many frames are sent over some connections. */
async function arrives(seed: number, only?: readonly string[]): Promise<{ readonly bytes: string[]; readonly done: readonly string[] }> {
  const damage = damageOf(seed, "postgres", "fake", only);
  const bytes: string[] = [];
  for (let connection = 0; connection < 3; connection++) {
    const through = damage.through();
    const parts: Buffer[] = [];
    try {
      for (const n of all.slice(0, 40)) for await (const piece of through(frame(n))) if (piece.length < 5_000) parts.push(piece);
    } catch {
      parts.push(Buffer.from("cut"));
    }
    bytes.push(Buffer.concat(parts).toString("hex"));
  }
  return { bytes, done: damage.done };
}

test("one seed is one damage, and so are all of its damages, given one by one", async () => {
  const first = await arrives(4);
  expect(first.done.length).toBeGreaterThan(3);
  expect(await arrives(4)).toEqual(first);
  expect(await arrives(4, first.done)).toEqual(first);
  expect((await arrives(5)).done).not.toEqual(first.done);
  expect((await arrives(4, [])).done).toEqual([]);
  const last = first.done.at(-1)!;
  expect((await arrives(4, [last])).done).toEqual([last]);
}, 120_000);

test("the fewest damages that still fail are found, alone or together", async () => {
  const failing =
    (needed: readonly number[]) =>
    async (some: readonly number[]): Promise<boolean> =>
      needed.every((each) => some.includes(each));
  expect(await fewest(all, failing([137]))).toEqual([137]);
  expect(await fewest(all, failing([3, 150]))).toEqual([3, 150]);
  expect(await fewest(all, failing([]))).toEqual([]);
  expect(await fewest(all, async () => false)).toBe(null);
});
