import { describe, expect, it } from "vitest";
import { createProgress } from "../../src/core/progress.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const what = { name: "once", topic: "order.events", id: "1" } as const;

describe("progress", () => {
  it("calls overdue what has neither ended nor got further in its time", async () => {
    const clock = manualClock();
    const progress = createProgress(clock);
    const [stuck, slow, done] = [
      progress.begin(what, 100),
      progress.begin({ ...what, id: "2" }, 100),
      progress.begin({ ...what, id: "3" }, 100),
    ];
    await clock.advance(90);
    slow.extend(100);
    done.end();
    await clock.advance(90);
    expect(progress.overdue()).toEqual([stuck]);
    stuck.end();
    expect(progress.overdue()).toEqual([]);
  });

  it("forgets a step that has ended, even if it is told of it again", async () => {
    const clock = manualClock();
    const progress = createProgress(clock);
    const step = progress.begin(what, 100);
    step.end();
    step.extend(100);
    await clock.advance(1_000);
    expect(progress.overdue()).toEqual([]);
  });
});
