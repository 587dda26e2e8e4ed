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

  test("holds by bytes what is worked on, and by a bound of its own what is set aside", () => {
    const room = createRoom({ prefetch: 10, waiting: 10, bytes: 100 });
    const first = room.take(60);
    expect([room.left > 0, room.bytesLeft, room.fits(40), room.fits(41)]).toEqual([true, 40, true, false]);
    const second = room.take(40);
    expect([room.left, room.bytesLeft, room.fits(1)]).toEqual([0, 0, false]);
    second.aside();
    second.aside();
    expect([room.left > 0, room.bytesLeft, room.fits(40), room.fits(41)]).toEqual([true, 40, true, false]);
    first.aside();
    expect([room.left > 0, room.bytesLeft]).toEqual([true, 100]);
    const third = room.take(10);
    third.aside();
    expect([room.left, room.bytesLeft, room.fits(1)]).toEqual([0, 0, false]);
    third.ack();
    third.ack();
    expect([room.left > 0, room.bytesLeft, room.fits(1_000)]).toEqual([true, 100, true]);
  });

  test("one delivery that is set aside leaves room for others, whatever its size", () => {
    const room = createRoom({ prefetch: 10, waiting: 10, bytes: 100 });
    const large = room.take(1_000);
    expect(room.left).toBe(0);
    large.aside();
    expect([room.left > 0, room.bytesLeft, room.fits(1_000)]).toEqual([true, 100, true]);
    room.take(49).aside();
    expect([room.left > 0, room.bytesLeft]).toEqual([true, 100]);
    const another = room.take(1_000);
    another.aside();
    expect([room.left, room.fits(1)]).toEqual([0, false]);
    large.ack();
    expect([room.left > 0, room.bytesLeft]).toEqual([true, 100]);
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
