import { describe, expect, it } from "vitest";
import { fatal } from "../../src/subscriber/fatal.ts";
import { envelope, eventually } from "./fakes.ts";
import { setup } from "./setup.ts";

const topic = "order.events";

describe("an assignment that the broker gave to another process", () => {
  it("ends the rest of a failed event at once: no further attempt, no count, no letter, no ack, and its followers stay back", async () => {
    const { broker, inbox, subscriber, clock, of } = setup();
    const [failing, follower, other] = [envelope("a"), envelope("a"), envelope("b")];
    const tried: string[] = [];
    const OrderPlaced = ({ id }: { id: string }): void => {
      tried.push(id);
      if (id === failing.id) throw new Error("not yet");
    };
    await subscriber({ retry: { delaysMs: [1_000, 1_000], jitter: 0 }, handlers: { OrderPlaced } }).start();
    broker.add(topic, failing, follower);
    await clock.advance(1_500);
    expect(inbox.failures.get(failing.id)).toBe(2);
    broker.takeAway("a");
    await clock.advance(60_000);
    broker.add(topic, other);
    await eventually(() => broker.acked.includes(other.id));
    expect(tried).toEqual([failing.id, failing.id, other.id]);
    expect(inbox.failures.get(failing.id)).toBe(2);
    expect(of("subscriber.died")).toEqual([]);
    expect(broker.acked).toEqual([other.id]);
    expect(broker.received, "the other assignments go on in the same receiving").toHaveLength(1);
  });

  it("lets a handler that has begun finish, and counts nothing and parks nothing for it", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [failing, doomed, good] = [envelope("a"), envelope("b"), envelope("c")];
    const ends = new Map<string, () => void>([
      [failing.id, () => { throw new Error("not yet"); }],
      [doomed.id, () => { throw fatal("no"); }],
    ]); // prettier-ignore
    await subscriber({
      handlers: {
        async OrderPlaced({ id }, tx) {
          await clock.sleep(900);
          ends.get(id)?.();
          tx.write(id);
        },
      },
    }).start();
    broker.add(topic, failing, doomed, good);
    await clock.advance(100);
    for (const aggregate of ["a", "b", "c"]) broker.takeAway(aggregate);
    await clock.advance(60_000);
    expect(inbox.effects).toEqual([good.id]);
    expect(inbox.failures.size).toBe(0);
    expect(inbox.parked.size).toBe(0);
    expect(broker.acked).toEqual([]);
  });

  it("parks no message that is no event", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [slow, unreadable] = [envelope("a"), envelope("a")];
    await subscriber({ handlers: { OrderPlaced: () => clock.sleep(900) } }).start();
    broker.add(topic, slow);
    broker.addUnreadable(topic, unreadable, { why: "it is no event", raw: Buffer.from("?") });
    await clock.advance(100);
    broker.takeAway("a");
    await clock.advance(60_000);
    expect(inbox.parked.size).toBe(0);
    expect(broker.acked).toEqual([]);
  });

  it("is tried again, behind what is left of it, when the broker gives it back", async () => {
    const { broker, inbox, subscriber, clock } = setup();
    const [failing, follower] = [envelope("a"), envelope("a")];
    let fails = true;
    const OrderPlaced = ({ id }: { id: string }, tx: { write: (effect: string) => void }): void => {
      if (fails && id === failing.id) throw new Error("not yet");
      tx.write(id);
    };
    await subscriber({ retry: { delaysMs: [30_000], jitter: 0 }, handlers: { OrderPlaced } }).start();
    broker.add(topic, failing, follower);
    await clock.advance(100);
    broker.takeAway("a");
    fails = false;
    broker.redeliver(topic, failing);
    broker.redeliver(topic, follower);
    await clock.advance(20_000);
    expect(inbox.effects, "its wait is not cut short").toEqual([]);
    await clock.advance(20_000);
    await eventually(() => inbox.effects.length === 2);
    expect(inbox.effects).toEqual([failing.id, follower.id]);
  });
});
