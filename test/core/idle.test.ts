import { describe, expect, test } from "vitest";
import { createAwaited, setIdle } from "../../src/core/idle.ts";

function handle(): { keeps: boolean; ref(): void; unref(): void } {
  return {
    keeps: true,
    ref() {
      this.keeps = true;
    },
    unref() {
      this.keeps = false;
    },
  };
}

describe("an idle connection", () => {
  test("keeps the process alive while an answer is awaited, and no longer", () => {
    const socket = handle();
    const awaited = createAwaited(socket);
    expect(socket.keeps).toBe(false);
    const [first, second] = [awaited.begin(), awaited.begin()];
    expect(socket.keeps).toBe(true);
    first();
    first();
    expect(socket.keeps, "the second answer is still awaited").toBe(true);
    second();
    expect(socket.keeps).toBe(false);
    const third = awaited.begin();
    expect(socket.keeps).toBe(true);
    third();
    expect(socket.keeps).toBe(false);
  });

  test("works the same where its client hides the socket", () => {
    for (const nothing of [undefined, null, {}, { ref: 1, unref: 2 }]) {
      createAwaited(nothing).begin()();
      setIdle(nothing, true);
    }
  });
});
