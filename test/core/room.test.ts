import { describe, expect, test } from "vitest";
import { createRoom } from "../../src/core/room.ts";

describe("the room of a receiving", () => {
  test("holds by count: prefetch for what is worked on, and so many more as are set aside", () => {
    const room = createRoom({ prefetch: 2, waiting: 1 });
    const [first, second] = [room.take(), room.take()];
    expect(room.left).toBe(0);
    first.aside();
    first.aside();
    expect(room.left).toBe(1);
    const third = room.take();
    expect(room.left).toBe(0);
    second.aside();
    expect(room.left).toBe(0);
    for (const taken of [first, first, second, third]) taken.ack();
    expect(room.left).toBe(2);
  });

  test("holds by bytes, what is set aside included", () => {
    const room = createRoom({ prefetch: 10, waiting: 10, bytes: 100 });
    const first = room.take(60);
    expect([room.left > 0, room.bytesLeft, room.fits(40), room.fits(41)]).toEqual([true, 40, true, false]);
    const second = room.take(40);
    second.aside();
    expect([room.left, room.fits(0)]).toEqual([0, true]);
    first.ack();
    first.ack();
    expect([room.left > 0, room.fits(60), room.fits(61)]).toEqual([true, true, false]);
  });

  test("lets one delivery through whatever its size, alone", () => {
    const room = createRoom({ prefetch: 10, bytes: 100 });
    expect(room.fits(1_000)).toBe(true);
    const large = room.take(1_000);
    expect([room.left, room.fits(1)]).toEqual([0, false]);
    large.ack();
    const small = room.take(1);
    expect(room.fits(1_000)).toBe(false);
    small.ack();
    expect(room.fits(1_000)).toBe(true);
  });
});
