import { expect, test } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import { claim, publishing } from "./publishing.ts";

test("followers of an event that failed in a window whose later event had to wait are not sent", async () => {
  const sent: number[] = [];
  let refused = 1;
  const sink = {
    name: "s",
    can: { maxBytes: 1e6 },
    connect: async () => undefined,
    probe: async () => undefined,
    [Symbol.asyncDispose]: async () => undefined,
    publish: async (batch: readonly { envelope: { seq: bigint } }[]) => {
      let stop = false;
      return batch.map(({ envelope: { seq } }) => {
        if (stop) return { status: "skipped" as const };
        sent.push(Number(seq));
        if (Number(seq) === refused) {
          stop = true;
          return { status: "refused" as const, blame: "event" as const, retryable: true, error: new Error("not now") };
        }
        return { status: "stored" as const };
      });
    },
  };
  const { claimed, publish, settled } = publishing({ sink, clock: systemClock, route: () => "t" });
  const of = (...ns: number[]) => ns.map((n) => claim("x", n));

  const a = claimed(...of(1, 2, 3));
  const b = claimed(...of(4, 5, 6));
  await publish(a); // 1 is refused, 2 and 3 go back
  await publish(b); // claimed ahead: goes back
  settled(a); // and 1, by now, may go again
  refused = 2;
  const c = claimed(...of(1, 2, 7)); // b is not settled yet: 4, 5 and 6 are in it
  await publish(c); // 7 has to wait, 1 is stored, 2 is refused
  settled(b);
  const d = claimed(...of(4, 5, 6)); // c is not settled yet
  expect({ d: await publish(d), sent }).toEqual({ d: ["returned", "returned", "returned"], sent: [1, 1, 2] });
});
