import { describe, expect, test } from "vitest";
import { turn } from "../../src/core/clock.ts";
import { safely, type PathEvent } from "../../src/core/path-events.ts";

const event: PathEvent = { type: "destination.closed", topic: "order.events" };

describe("an observer", () => {
  test("hears every event", () => {
    const heard: PathEvent[] = [];
    const observe = safely((one) => void heard.push(one));
    observe(event);
    observe(event);
    expect(heard).toEqual([event, event]);
  });

  test("that throws or rejects harms nobody", async () => {
    const unhandled: unknown[] = [];
    const listen = (reason: unknown): void => void unhandled.push(reason);
    process.on("unhandledRejection", listen);
    expect(() =>
      safely(() => {
        throw new Error("broken");
      })(event),
    ).not.toThrow();
    const asynchronous = (): void => Promise.reject(new Error("broken later")) as unknown as void;
    safely(asynchronous)(event);
    for (let i = 0; i < 3; i++) await turn();
    process.off("unhandledRejection", listen);
    expect(unhandled).toEqual([]);
  });
});
