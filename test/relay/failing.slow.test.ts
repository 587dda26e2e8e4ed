import { describe, expect, test } from "vitest";
import { benches, draft } from "../support/outbox.ts";
import { firstDeliveries } from "../support/scripted-sink.ts";
import { scene, start, type Scene } from "./scene.ts";

const by = { who: "test", dryRun: false };
const deathsOf = ({ events }: Scene) => events.filter(({ type }) => type === "relay.died");

describe.each(Object.entries(benches))("%s: an event that is always refused", (_name, open) => {
  const jitterless = { retry: { jitter: 0 } };

  test("is tried at once and after 1, 5, 30 and 120 s, and is DEAD at its fifth failure", async () => {
    const tries: number[] = [];
    const bad = draft("bad", 1);
    const followers = [draft("bad", 2), draft("bad", 3)];
    const other = draft("good", 1);
    await using s: Scene = await scene(
      open,
      {
        verdict: ({ envelope }) => {
          if (envelope.aggregateId !== "bad") return "stored";
          tries.push(s.clock.now() - start);
          return "refused";
        },
      },
      jitterless,
    );
    await s.bench.add(bad, ...followers, other);
    await s.clock.advance(200);
    expect(await s.bench.stateOf(bad.id)).toBe("FAILED");
    expect(await s.bench.stateOf(other.id)).toBe("PUBLISHED");
    await s.clock.advance(155_000);
    expect(await s.bench.stateOf(bad.id)).toBe("FAILED");
    await s.clock.advance(2_000);
    expect(await s.bench.stateOf(bad.id)).toBe("DEAD");
    const waits = tries.slice(1).map((at, i) => at - tries[i]!);
    for (const [i, want] of [1_000, 5_000, 30_000, 120_000].entries()) {
      expect(waits[i]).toBeGreaterThanOrEqual(want);
      expect(waits[i]).toBeLessThan(want + 200);
    }
    expect(tries).toHaveLength(5);
    for (const follower of followers) expect(await s.bench.stateOf(follower.id)).toBe("BLOCKED");
    expect((await s.bench.operator.show(bad.id))!.retryCount).toBe(5);
    expect(deathsOf(s)).toHaveLength(1);
    expect(deathsOf(s)[0]).toMatchObject({ id: bad.id, aggregateId: "bad", followers: "blocked" });
    await s.clock.advance(600_000);
    expect(tries).toHaveLength(5);
  });

  test("holds back followers that are added while it waits and after it is dead, and nobody else", async () => {
    const bad = draft("bad", 1);
    await using s = await scene(open, { verdict: ({ envelope }) => (envelope.id === bad.id ? "refused-for-good" : "stored") });
    await s.bench.add(bad);
    await s.clock.advance(100);
    const late = [draft("bad", 2), draft("bad", 3)];
    const others = Array.from({ length: 50 }, (_, i) => draft(`good-${i}`, 1));
    await s.bench.add(...late, ...others);
    await s.clock.advance(200);
    expect(await s.bench.stateOf(bad.id)).toBe("DEAD");
    for (const event of late) expect(await s.bench.stateOf(event.id)).toBe("BLOCKED");
    for (const event of others) expect(await s.bench.stateOf(event.id)).toBe("PUBLISHED");
    const { states, holds } = await s.bench.operator.status();
    expect(states).toMatchObject({ DEAD: 1, BLOCKED: 2, PUBLISHED: 50 });
    expect(holds.list).toMatchObject([{ aggregateId: "bad", causeId: bad.id }]);
  });

  test("redriven, is published first and then its followers in order, while more are added", async () => {
    let broken = true;
    const bad = draft("a", 1);
    await using s = await scene(
      open,
      { verdict: ({ envelope }) => (broken && envelope.id === bad.id ? "refused-for-good" : "stored") },
      { batch: 3 },
    );
    await s.bench.add(bad, ...[2, 3, 4, 5, 6].map((n) => draft("a", n)));
    await s.clock.advance(100);
    broken = false;
    const [report] = await Promise.all([s.bench.operator.redrive({ ids: [bad.id] }, by), s.bench.add(draft("a", 7))]);
    expect(report).toMatchObject({ events: 1, ids: [bad.id] });
    for (let n = 8; n <= 20; n++) {
      await s.bench.add(draft("a", n));
      await s.clock.advance(7);
    }
    await s.clock.advance(1_000);
    expect([...firstDeliveries(s.sink.log).values()]).toEqual([Array.from({ length: 20 }, (_, i) => i + 1)]);
    expect(s.sink.log).toHaveLength(20);
    expect((await s.bench.operator.status()).holds.aggregates).toBe(0);
  });

  test("redriven and refused again, dies again with its attempts counted anew", async () => {
    const bad = draft("a", 1);
    await using s = await scene(
      open,
      { verdict: ({ envelope }) => (envelope.id === bad.id ? "refused" : "stored") },
      { retry: { delaysMs: [10, 10] } },
    );
    await s.bench.add(bad, draft("a", 2));
    await s.clock.advance(500);
    expect(await s.bench.stateOf(bad.id)).toBe("DEAD");
    await s.bench.operator.redrive({ ids: [bad.id] }, by);
    await s.clock.advance(500);
    expect(await s.bench.stateOf(bad.id)).toBe("DEAD");
    expect((await s.bench.operator.show(bad.id))!.retryCount).toBe(3);
    expect(deathsOf(s)).toHaveLength(2);
    expect(s.sink.sent.filter((id) => id === bad.id)).toHaveLength(6);
  });

  test("discarded, is kept as DISCARDED and its followers are released in order", async () => {
    const bad = draft("a", 1);
    await using s = await scene(
      open,
      { verdict: ({ envelope }) => (envelope.id === bad.id ? "refused-for-good" : "stored") },
      { batch: 2 },
    );
    await s.bench.add(bad, ...[2, 3, 4, 5].map((n) => draft("a", n)));
    await s.clock.advance(100);
    await s.bench.operator.discard({ ids: [bad.id] }, by);
    await s.bench.add(draft("a", 6));
    await s.clock.advance(500);
    expect(await s.bench.stateOf(bad.id)).toBe("DISCARDED");
    expect([...firstDeliveries(s.sink.log).values()]).toEqual([[2, 3, 4, 5, 6]]);
  });

  test("under policy skip, releases its followers when it dies and not before", async () => {
    const bad = draft("a", 1);
    await using s = await scene(
      open,
      { verdict: ({ envelope }) => (envelope.id === bad.id ? "refused" : "stored") },
      { skip: ["Order"], retry: { delaysMs: [1_000], jitter: 0 } },
    );
    await s.bench.add(bad, draft("a", 2), draft("a", 3));
    await s.clock.advance(900);
    expect(s.sink.log).toHaveLength(0);
    await s.clock.advance(1_000);
    expect(await s.bench.stateOf(bad.id)).toBe("DEAD");
    expect([...firstDeliveries(s.sink.log).values()]).toEqual([[2, 3]]);
    expect(deathsOf(s)).toMatchObject([{ followers: "released" }]);
  });
});

describe.each(Object.entries(benches))("%s: an event that must not be sent", (_name, open) => {
  test("too large in the middle of its aggregate's run, it dies unsent and its followers are not sent either", async () => {
    const large = draft("a", 2, { payload: { n: 2, filler: "x".repeat(20_000) } });
    await using s = await scene(open, {});
    await s.bench.add(draft("a", 1), large, draft("a", 3), draft("b", 1));
    await s.clock.advance(200);
    expect(s.sink.sent).not.toContain(large.id);
    expect((await s.bench.operator.show(large.id))!).toMatchObject({
      state: "DEAD",
      errorCode: "MESSAGE_TOO_LARGE",
    });
    expect(s.sink.log.map(({ aggregate, n }) => [aggregate.split("\0")[1], n]).sort()).toEqual([
      ["a", 1],
      ["b", 1],
    ]);
  });

  test("with a header that a broker would misread, written by plain SQL, it dies unsent with the reason", async () => {
    await using s = await scene(open, {});
    const bad = draft("a", 1);

    const claim = s.bench.store.outbox.claim.bind(s.bench.store.outbox);
    // No database refuses such a header by itself: the store is made to give one out.
    Object.assign(s.bench.store.outbox, {
      claim: async (...asked: Parameters<typeof claim>) => {
        const window = await claim(...asked);
        return {
          ...window,
          claims: window.claims.map((each) => ({ ...each, envelope: { ...each.envelope, headers: { "Nats-Rollup": "all" } } })),
        };
      },
    });
    await s.bench.add(bad);
    await s.clock.advance(200);
    expect(s.sink.sent).toEqual([]);
    expect((await s.bench.operator.show(bad.id))!).toMatchObject({
      state: "DEAD",
      errorCode: "RESERVED_HEADER",
    });
  });

  test("without a usable route, it dies with the reason", async () => {
    const lost = draft("a", 1, { type: "Odd" });
    await using s = await scene(open, {}, { route: (event) => (event.type === "Odd" ? "" : "topic") });
    await s.bench.add(lost, draft("b", 1));
    await s.clock.advance(200);
    expect((await s.bench.operator.show(lost.id))!).toMatchObject({
      state: "DEAD",
      errorCode: "ROUTE_FAILED",
    });
    expect(s.sink.log).toHaveLength(1);
  });
});
