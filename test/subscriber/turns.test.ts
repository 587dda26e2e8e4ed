import fc from "fast-check";
import { describe, expect, it } from "vitest";
import { createTurns } from "../../src/subscriber/turns.ts";
import { settle } from "./fakes.ts";

/** A promise that a test ends. */
function gate(): { readonly opened: Promise<void>; open(): void } {
  let open: () => void = () => undefined;
  const opened = new Promise<void>((resolve) => (open = resolve));
  return { opened, open };
}

describe("turns", () => {
  it("runs each key's tasks in order and never more than the limit at once, whatever steps aside or fails", async () => {
    const task = fc.record({
      key: fc.constantFrom("a", "b", "c", "d"),
      steps: fc.array(fc.constantFrom("run", "aside"), { maxLength: 4 }),
      fails: fc.boolean(),
    });
    await fc.assert(
      fc.asyncProperty(fc.integer({ min: 1, max: 4 }), fc.array(task, { maxLength: 30 }), async (limit, tasks) => {
        const turns = createTurns(limit);
        const seen: Record<string, number[]> = {};
        const open = new Map<string, number>();
        let running = 0;
        let most = 0;
        const enter = (): void => void (most = Math.max(most, ++running));
        await Promise.all(
          tasks.map(({ key, steps, fails }, n) =>
            turns
              .take(key, async (turn) => {
                expect(open.get(key)).toBeUndefined();
                open.set(key, n);
                enter();
                for (const step of steps) {
                  if (step === "run") await Promise.resolve();
                  else {
                    running -= 1;
                    await turn.aside(() => Promise.resolve());
                    enter();
                  }
                }
                running -= 1;
                open.delete(key);
                (seen[key] ??= []).push(n);
                if (fails) throw new Error("as told");
              })
              .catch((error: unknown) => expect(error).toEqual(new Error("as told"))),
          ),
        );
        expect(most).toBeLessThanOrEqual(limit);
        expect(Object.values(seen).flat()).toHaveLength(tasks.length);
        for (const order of Object.values(seen)) expect(order).toEqual([...order].sort((x, y) => x - y));
      }),
    );
  });

  it("lets other keys run while one steps aside, but not its own followers", async () => {
    const turns = createTurns(1);
    const { opened, open } = gate();
    const done: string[] = [];
    void turns.take("a", async (turn) => {
      await turn.aside(() => opened);
      done.push("a1");
    });
    void turns.take("a", async () => void done.push("a2"));
    void turns.take("b", async () => void done.push("b1"));
    await settle();
    expect(done).toEqual(["b1"]);
    open();
    await turns.idle();
    expect(done).toEqual(["b1", "a1", "a2"]);
  });

  it("is idle only when the last task has ended", async () => {
    const turns = createTurns(2);
    const { opened, open } = gate();
    let idle = false;
    void turns.take("a", () => opened);
    void turns.idle().then(() => (idle = true));
    await settle();
    expect(idle).toBe(false);
    open();
    await settle();
    expect(idle).toBe(true);
  });
});
