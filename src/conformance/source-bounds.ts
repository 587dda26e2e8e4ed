import assert from "node:assert/strict";
import type { Envelope } from "../core/event.ts";
import { quiet, sampleEvent, within } from "./corpus.ts";
import { eventIds, ids, many, quietMs, type SourceBench } from "./receiving.ts";

/** How much a source hands out at once, and that none of it stops the rest. */
export function sourceBounds(test: (name: string, run: (bench: SourceBench) => Promise<void>) => void, soonMs: number): void {
  test("no more than `prefetch` are unacknowledged at once, and an ack makes room for one", async ({ topic, store, receive }) => {
    const events = many(8);
    await store(topic, events);
    const { take, next } = await receive({ prefetch: 3 });
    const deliveries = await take(3);
    const fourth = next();
    await quiet(quietMs, "a delivery beyond prefetch", fourth);
    await deliveries[1]!.ack();
    // A second ack of the same delivery makes no more room.
    await deliveries[1]!.ack();
    assert.equal((await within(soonMs, "delivery after an ack", fourth))?.envelope.id, events[3]!.id);
    await quiet(quietMs, "a delivery beyond prefetch, after one ack given twice", next());
  });

  test("what is set aside makes room for others, up to `waiting`, and is not acknowledged by it", async ({ topic, store, receive }) => {
    const events = many(8);
    await store(topic, events);
    const first = await receive({ prefetch: 2, waiting: 3 });
    const deliveries = [...(await first.take(2))];
    deliveries[0]!.aside();
    // A second `aside` of the same delivery makes no more room.
    deliveries[0]!.aside();
    deliveries.push(...(await first.take(1)));
    const fourth = first.next();
    await quiet(quietMs, "a delivery beyond prefetch, after one was set aside twice", fourth);
    deliveries[1]!.aside();
    deliveries.push((await within(soonMs, "delivery after one was set aside", fourth))!);
    for (const delivery of deliveries) delivery.aside();
    deliveries.push(...(await first.take(1)));
    const sixth = first.next();
    await quiet(quietMs, "a delivery beyond prefetch and waiting", sixth);
    await deliveries[0]!.ack();
    deliveries.push((await within(soonMs, "delivery after an ack of what was set aside", sixth))!);
    assert.deepEqual(ids(deliveries), eventIds(events.slice(0, 6)));
    await first.close();
    assert.deepEqual(ids(await (await receive({})).take(1)), [events[1]!.id]);
  });

  test("one message larger than `bytes` comes alone, and once it is set aside others come, up to a bound", async ({
    topic,
    store,
    receive,
  }) => {
    const large = (): Envelope => sampleEvent({ aggregateId: "one", data: new Uint8Array(20_000).fill(120) });
    const small = (): Envelope => sampleEvent({ aggregateId: "one" });
    const [first, second] = [large(), small()];
    await store(topic, [first]);
    const { take, next } = await receive({ waiting: 10, bytes: 5_000 });
    const [one] = await take(1);
    assert.equal(one!.envelope.id, first.id);
    await store(topic, [second]);
    const waiting = next();
    await quiet(quietMs, "a delivery beyond the bytes", waiting);
    one!.aside();
    const two = (await within(soonMs, "delivery while a large one waits", waiting))!;
    assert.equal(two.envelope.id, second.id);
    await two.ack();

    const [third, fourth] = [large(), small()];
    await store(topic, [third, fourth]);
    const [three] = await take(1);
    assert.equal(three!.envelope.id, third.id);
    three!.aside();
    const last = next();
    await quiet(quietMs, "a delivery beyond the bytes that may wait", last);
    await one!.ack();
    assert.equal((await within(soonMs, "delivery after an ack of what waited", last))?.envelope.id, fourth.id);
  });

  test("receivings that ended without progress set nothing aside that can be read: `stalls` alone is no verdict", async ({
    topic,
    store,
    receive,
  }) => {
    const events = many(12);
    await store(topic, events);
    for (const stalls of [1, 3, 30]) {
      const receiving = await receive({ stalls });
      const deliveries = await receiving.take(12);
      const found = deliveries.map(({ envelope, unreadable }) => unreadable?.why ?? envelope.id);
      assert.deepEqual(found, eventIds(events), String(stalls));
      if (stalls === 30) for (const delivery of deliveries) await delivery.ack();
      await receiving.close();
    }
    await quiet(quietMs, "an acknowledged event was delivered again", (await receive({ stalls: 30 })).next());
  });
}
