import { expect, test } from "vitest";
import type { Claim, OutboxStore } from "../../src/contracts/outbox-store.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { benches, draft } from "../support/outbox.ts";
import { scriptedSink } from "../support/scripted-sink.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const leaseMs = 1_000;
const large = (aggregate: string, n = 1) => draft(aggregate, n, { payload: { n, x: "x".repeat(5_000) } });

async function setUp(
  payload: (outbox: OutboxStore) => OutboxStore["payload"],
  { claimed = (claim) => claim, ...options }: Partial<RelayOptions> & { readonly claimed?: (claim: Claim) => Claim } = {},
) {
  const clock = manualClock(Date.UTC(2030, 0, 1));
  const bench = await benches["memory"]!(clock);
  const events: PathEvent[] = [];
  const sink = scriptedSink();
  const { outbox } = bench.store;
  const claim: OutboxStore["claim"] = async (holding, request) => {
    const window = await outbox.claim(holding, request);
    return { ...window, claims: window.claims.map(claimed) };
  };
  const relay = createRelay({
    store: { ...bench.store, outbox: { ...outbox, claim, payload: payload(outbox) } },
    sink,
    clock,
    leaseMs,
    windowBytes: 2_000,
    housekeeping: false,
    retry: { delaysMs: [2_000, 2_000], jitter: 0 },
    observe: (event) => void events.push(event),
    ...options,
  });
  await relay.start();
  const stop = async (): Promise<void> => {
    const stopped = relay.stop();
    await clock.advance(3_000);
    await stopped;
    await bench[Symbol.asyncDispose]();
  };
  return { clock, bench, events, sink, relay, stop };
}

test("a payload that never arrives is its own event's failure, and everything else flows under the same lease", async () => {
  const asked: number[] = [];
  const { clock, bench, events, sink, stop } = await setUp(() => () => {
    asked.push(clock.now());
    return new Promise(() => undefined);
  });
  const [stuck, follower] = [large("stuck"), draft("stuck", 2)];
  await bench.add(stuck, follower);
  const others: string[] = [];
  for (let n = 0; n < 120; n++) {
    const other = draft(`order-${n % 7}`, n);
    others.push(other.id);
    await bench.add(other);
    await clock.advance(200);
    expect(sink.sent, "nothing waits for it").toContain(other.id);
  }
  expect(await bench.stateOf(stuck.id)).toBe("DEAD");
  expect(await bench.stateOf(follower.id)).toBe("BLOCKED");
  expect(asked).toHaveLength(3);
  expect(events.filter(({ type }) => type === "relay.failed")).toHaveLength(2);
  expect(events.filter(({ type }) => type === "relay.died")).toMatchObject([
    {
      id: stuck.id,
      error: expect.stringMatching(/^ROW_UNREADABLE: its payload of \d+ bytes could not be read: the store did not answer/) as string,
    },
  ]);
  expect(events.filter(({ type }) => type === "lanes.lost" || type === "relay.trouble")).toEqual([]);
  expect(sink.sent).toHaveLength(others.length);
  await stop();
});

test("a payload that arrives at the second attempt is published whole, before its followers", async () => {
  let attempts = 0;
  const { clock, bench, sink, stop } = await setUp(
    (outbox) => (claim, signal) => (++attempts === 1 ? Promise.reject(new Error("the link was lost")) : outbox.payload(claim, signal)),
  );
  await bench.add(large("order-1", 1), draft("order-1", 2), large("order-1", 3));
  await clock.advance(10_000);
  expect(sink.log.map(({ n }) => n)).toEqual([1, 2, 3]);
  expect(attempts).toBe(3);
  await stop();
});

test("an event that the sink cannot take is not read: it ends dead, and everything else flows", async () => {
  const { clock, bench, events, sink, stop } = await setUp(() => () => Promise.reject(new Error("it was read")));
  const huge = draft("huge", 1, { payload: { n: 1, x: "x".repeat(20_000) } });
  await bench.add(draft("order-1", 1), huge, draft("huge", 2), draft("order-2", 1));
  await clock.advance(1_000);
  expect(sink.log).toHaveLength(2);
  expect(await bench.stateOf(huge.id)).toBe("DEAD");
  expect(events.filter(({ type }) => type === "relay.died")).toMatchObject([
    {
      id: huge.id,
      error: expect.stringMatching(/^MESSAGE_TOO_LARGE: the message takes 20\d\d\d bytes, and scripted takes 10000$/) as string,
    },
  ]);
  await stop();
});

test("events that the sink cannot take share a window with others: each ends dead in its aggregate's order, and none is read", async () => {
  const { clock, bench, events, sink, stop } = await setUp(() => () => Promise.reject(new Error("it was read")), {
    windowBytes: 1_000_000,
  });
  const huge = Array.from({ length: 50 }, (_, n) => draft(`huge-${n}`, 2, { payload: { n: 2, x: "x".repeat(20_000) } }));
  await bench.add(...huge.flatMap((each, n) => [draft(`huge-${n}`, 1), each, draft(`huge-${n}`, 3)]), draft("order-1", 1));
  await clock.advance(1_000);
  const windows = events.flatMap((event) => (event.type === "relay.claimed" ? [event.count] : []));
  expect(windows[0]).toBe(151);
  expect(windows.length).toBeLessThan(5);
  expect(sink.log.map(({ n }) => n)).toEqual(Array.from({ length: 51 }, () => 1));
  for (const { id } of huge) expect(await bench.stateOf(id)).toBe("DEAD");
  expect(
    events.flatMap((event) => (event.type === "relay.died" ? [event.error] : [])).filter((why) => !/^MESSAGE_TOO_LARGE/.test(why)),
  ).toEqual([]);
  await stop();
});

test("an event that no process could hold is not read, whatever the sink takes: it ends dead", async () => {
  const bytes = 300 * 1024 * 1024;
  const { clock, bench, events, stop } = await setUp(() => () => Promise.reject(new Error("it was read")), {
    sink: { ...scriptedSink(), can: { maxBytes: Number.MAX_SAFE_INTEGER } },
    claimed: (claim) => (claim.unread === undefined ? claim : { ...claim, unread: bytes }),
  });
  await bench.add(large("order-1"));
  await clock.advance(1_000);
  expect(events.filter(({ type }) => type === "relay.died")).toMatchObject([
    { error: `ROW_UNREADABLE: the payload takes ${bytes} bytes, more than the 268435456 that can be read` },
  ]);
  await stop();
});

test("payloads are read one after the other, and a relay that stops meanwhile spends no attempt", async () => {
  let reading = 0;
  let most = 0;
  const { clock, bench, relay, sink } = await setUp((outbox) => async (claim, signal) => {
    most = Math.max(most, ++reading);
    await clock.sleep(500);
    reading--;
    return outbox.payload(claim, signal);
  });
  const drafts = Array.from({ length: 6 }, (_, n) => large(`order-${n}`));
  await bench.add(...drafts);
  await clock.advance(1_200);
  expect([most, sink.log.length]).toEqual([1, 2]);
  const drained = relay.drain();
  await clock.advance(100);
  await drained;
  for (const { id } of drafts.slice(2)) expect(await bench.operator.show(id)).toMatchObject({ state: "PENDING", retryCount: 0 });
  await bench[Symbol.asyncDispose]();
});

test("a read that is given up is called off, and the next one begins when it has ended", async () => {
  let reading = 0;
  let most = 0;
  const { clock, bench, events, stop } = await setUp(() => async (_claim, signal) => {
    most = Math.max(most, ++reading);
    await clock.sleep(60_000, signal);
    await clock.sleep(300);
    reading--;
    throw new Error("called off");
  });
  await bench.add(...Array.from({ length: 4 }, (_, n) => large(`order-${n}`)));
  await clock.advance(3_250);
  expect(reading, "the first one is about to end").toBe(1);
  await clock.advance(3_000);
  expect([reading, most]).toEqual([1, 1]);
  await clock.advance(10_000);
  expect(most).toBe(1);
  const failed = events.filter((event) => event.type === "relay.failed");
  expect(failed.length).toBeGreaterThanOrEqual(4);
  for (const { error } of failed) expect(error).toContain("the store did not answer within 3000 ms");
  await stop();
});

test("a read whose parts keep coming may take its time, and one that stops between two parts is given up", async () => {
  const parts: Record<string, number> = { slow: 10, stuck: 2 };
  const { clock, bench, events, sink, stop } = await setUp((outbox) => async (claim, signal, arrived) => {
    for (let n = parts[claim.envelope.aggregateId]!; n > 0; n--) {
      await clock.sleep(2_000, signal);
      arrived?.();
    }
    if (claim.envelope.aggregateId === "stuck") await clock.sleep(60_000, signal);
    signal.throwIfAborted();
    return outbox.payload(claim, signal);
  });
  const [slow, stuck] = [large("slow"), large("stuck")];
  await bench.add(slow, stuck);
  await clock.advance(21_000);
  expect(sink.sent).toEqual([slow.id]);
  expect(events.filter(({ type }) => type === "relay.failed")).toEqual([]);
  await clock.advance(5_800);
  expect(events.filter(({ type }) => type === "relay.failed")).toEqual([]);
  await clock.advance(500);
  expect(events.filter(({ type }) => type === "relay.failed")).toMatchObject([{ id: stuck.id }]);
  await stop();
});

test("a relay that drains calls its read off", async () => {
  let calledOff = false;
  const { clock, bench, relay } = await setUp(() => async (_claim, signal) => {
    await clock.sleep(60_000, signal);
    calledOff = signal.aborted;
    throw new Error("called off");
  });
  const event = large("order-1");
  await bench.add(event);
  await clock.advance(500);
  const drained = relay.drain();
  await clock.advance(100);
  await drained;
  expect(calledOff).toBe(true);
  expect(await bench.operator.show(event.id)).toMatchObject({ state: "PENDING", retryCount: 0 });
  await bench[Symbol.asyncDispose]();
});

test("a large event for a topic that is away is not read: it waits for its topic, and others are read meanwhile", async () => {
  const asked: string[] = [];
  let away = true;
  const { clock, bench, stop } = await setUp(
    (outbox) => async (claim, signal) => {
      asked.push(claim.envelope.aggregateId);
      await clock.sleep(500, signal);
      return outbox.payload(claim, signal);
    },
    {
      route: ({ type }) => type,
      sink: scriptedSink({
        verdict: ({ topic }) => (topic === "missing" && away ? "down" : "stored"),
        probe: (topic) => {
          if (topic === "missing" && away) throw new Error("no such topic");
        },
      }),
    },
  );
  const missing = Array.from({ length: 60 }, (_, n) => ({ ...large(`missing-${n}`), type: "missing" }));
  const well = { ...large("well"), type: "well" };
  await bench.add(...missing, well, draft("small", 1, { type: "well" }));
  await clock.advance(3_000);
  expect(asked.filter((name) => name !== "well")).toHaveLength(1);
  expect(await bench.stateOf(well.id)).toBe("PUBLISHED");
  for (const { id } of missing) expect(await bench.operator.show(id)).toMatchObject({ retryCount: 0 });
  away = false;
  await clock.advance(90_000);
  for (const { id } of missing) expect(await bench.stateOf(id)).toBe("PUBLISHED");
  await stop();
});
