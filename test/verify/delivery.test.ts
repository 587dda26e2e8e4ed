import { describe, expect, test } from "vitest";
import { check } from "../../src/proof/judge/check.ts";
import { invariants } from "../../src/proof/judge/verdict.ts";
import type { Entry } from "../../src/proof/judge/history.ts";
import type { Reads } from "../../src/proof/judge/reads.ts";
import { added, bounds, copy, effect, entry, event, fault, healed, held, one, sent, short, two, verdictOf, well, wellRead } from "./run.ts";

const three = event("e3", 3);
const rolledBack = [...well, ...added([three], 3, "failed")];
const lostAnswer = [...well, ...added([three], 3, "unknown")];
const redrive = (at: number, consumer = "stock"): Entry =>
  entry(at, "ann", "ok", { op: "operate", action: "redrive", ids: ["e1"], consumer });
const applied = (at: number): Entry => entry(at, "stock-1", "ok", { op: "effect", consumer: "stock", id: "e1" });
const failover = fault(4, "failover", 0, { target: "store" });

describe("a run without a fault", () => {
  test("holds every invariant, and pardons nothing", () => {
    const { held: all, verdicts } = check(well, wellRead, bounds);
    expect(verdicts.map(({ invariant }) => invariant)).toEqual(invariants);
    expect(verdicts.map(short)).toEqual(invariants.map(() => "holds"));
    expect(all).toBe(true);
  });

  test("does not hold when one invariant is unknown", () => {
    expect(check(well, { ...wellRead, samples: null }, bounds).held).toBe(false);
  });
});

describe("no loss", () => {
  const verdict = verdictOf.bind(null, "no loss");

  test("a committed event that is nowhere is lost; the smallest is told", () => {
    expect(short(verdict(well, { broker: [], outbox: [], effects: [] }))).toBe(
      "broken 2 times: Order 1 #1 was committed and is not on order.events, nor in the outbox [e1]",
    );
  });

  test("a row that says PUBLISHED is no excuse", () => {
    expect(short(verdict(well, { broker: [copy(one)], effects: [effect(one)] }))).toBe(
      "broken 1 times: Order 1 #2 was committed and is not on order.events, though the outbox says PUBLISHED [e2]",
    );
  });

  test("an event on another topic than its own is lost", () => {
    expect(short(verdict(well, { broker: [copy(one), { ...copy(two), topic: "other" }] }))).toMatch(/#2 was committed and is not on order/);
  });

  test("a message that had neither effect nor letter is lost", () => {
    expect(short(verdict(well, { effects: [effect(one)] }))).toBe(
      "broken 1 times: Order 1 #2 is on order.events, and had no effect at stock [e2]",
    );
  });

  test("what a consumer gave up is lost, unless something was broken that was its own", () => {
    const parked = { effects: [effect(one)], letters: [{ consumer: "stock", id: "e2" }] };
    expect(short(verdict(well, parked))).toBe(
      "broken 1 times: Order 1 #2 was given up by stock, and nothing that was broken was its own [e2]",
    );
    expect(short(verdict([...well, fault(2, "handler-fails", 0, { target: "e2" })], parked))).toBe("holds, 1 × parked-by-the-consumer");
    expect(short(verdict([...well, fault(2, "outage", 0)], parked))).toMatch(/^broken/);
  });

  const left = (state: "DEAD" | "DISCARDED" | "BLOCKED") => ({
    broker: [copy(one)],
    effects: [effect(one)],
    outbox: [{ id: "e2", aggregate: "Order 1", state }],
  });

  test("what still waits is not lost; what an operator gave up is not either", () => {
    expect(short(verdict(well, left("BLOCKED")))).toBe("holds");
    const discard = entry(3, "ann", "ok", { op: "operate", action: "discard", ids: ["e2"] });
    expect(short(verdict([...well, discard], left("DISCARDED")))).toBe("holds, 1 × discarded");
    expect(short(verdict(well, left("DISCARDED")))).toMatch(/is not on order.events, though the outbox says DISCARDED/);
  });

  test("what is dead is lost, unless something was broken that was its own", () => {
    expect(short(verdict(well, left("DEAD")))).toBe("broken 1 times: Order 1 #2 is DEAD, and nothing that was broken was its own [e2]");
    expect(short(verdict([...well, fault(2, "outage", 0)], left("DEAD")))).toMatch(/^broken/);
    for (const scope of [{ aggregates: ["Order 1"] }, { topics: ["order.events"] }])
      expect(short(verdict([...well, fault(2, "poison", 0, { scope })], left("DEAD")))).toBe("holds, 1 × dead");
    expect(short(verdict([...well, fault(2, "poison", 0, { scope: { aggregates: ["Order 2"] } })], left("DEAD")))).toMatch(/^broken/);
  });

  test("a number that is missing in the database's own count is a loss", () => {
    const [first, second] = wellRead.written!;
    expect(short(verdict(well, { written: [first!, { ...second!, n: 3 }] }))).toMatch(
      /Order 1 #2 is missing among those that the database/,
    );
  });

  test("a run in which nothing happened shows nothing", () => {
    const nothing = { written: [], broker: [], effects: [], outbox: [] };
    expect(short(verdict([healed], nothing))).toMatch(/^unknown: nothing was applied/);
    const idle = check([healed], { ...wellRead, ...nothing }, { ...bounds, mayBeIdle: true });
    expect(short(idle.verdicts[0]!)).toBe("holds");
  });

  test("a transaction whose end nobody heard is decided by the workload's own table, or not at all", () => {
    expect(short(verdict(lostAnswer))).toBe("holds");
    const kept = { written: [...wellRead.written!, { id: "e3", aggregate: "Order 1", n: 3 }] };
    expect(short(verdict(lostAnswer, kept))).toMatch(/^broken 1 times: Order 1 #3 was committed/);
    expect(short(verdict(lostAnswer, { written: null }))).toMatch(/^unknown: nobody knows whether event e3 was committed/);
    // A writer that died before it could write down the end.
    expect(short(verdict(lostAnswer.slice(0, -1), kept))).toMatch(/^broken 1 times: Order 1 #3/);
  });

  test("what the database forgot is legal after a fail-over, and a loss without one", () => {
    const forgotten = { written: wellRead.written!.slice(0, 1), broker: [copy(one)], effects: [effect(one)], outbox: [] };
    expect(short(verdict([...well, failover], forgotten))).toBe("holds, 1 × lost-with-the-database");
    expect(short(verdict(well, forgotten))).toMatch(/#2 was committed, and the database has forgotten it \[e2\]/);
    const over = entry(0.5, "nemesis", "ok", { op: "fault", fault: "failover", target: "store", copies: 0, scope: "all" });
    const before = [fault(0.2, "failover", 0, { target: "store" }), over, ...well];
    expect(short(verdict(before, forgotten))).toMatch(/#2 was committed, and the database has forgotten it/);
  });

  test("what could not be read is unknown", () => {
    for (const missing of ["broker", "outbox", "effects", "letters"]) expect(short(verdict(well, { [missing]: null }))).toMatch(/^unknown/);
  });
});

describe("no phantom", () => {
  const verdict = verdictOf.bind(null, "no phantom");

  test("an event of a rolled-back transaction, or of a rolled-back savepoint, must be nowhere", () => {
    expect(short(verdict(rolledBack))).toBe("holds");
    expect(short(verdict(rolledBack, { broker: [...wellRead.broker!, copy(three)] }))).toBe(
      "broken 1 times: Order 1 #3 is on order.events, and its transaction was rolled back [e3]",
    );
    const undone = [...well, ...added([{ ...three, undone: true }], 3)];
    expect(short(verdict(undone, { effects: [...wellRead.effects!, effect(three)] }))).toMatch(/#3 is applied by stock/);
    const delivered = entry(4, "stock-1", "ok", { op: "deliver", consumer: "stock", topic: "order.events", id: "e3", sha: three.sha });
    expect(short(verdict([...undone, delivered]))).toMatch(/#3 is delivered to stock/);
  });

  test("an event that the database has, and its writer was told it has not, is one", () => {
    const kept = { written: [...wellRead.written!, { id: "e3", aggregate: "Order 1", n: 3 }] };
    expect(short(verdict(rolledBack, kept))).toMatch(/Order 1 #3 is in the database, and its writer was told that it is not/);
    expect(short(verdict(well, kept))).toMatch(/Order 1 #3 is in the database, and nobody added it/);
  });

  test("an event that nobody added is one", () => {
    expect(short(verdict(well, { broker: [copy(three)] }))).toBe("broken 1 times: event e3 is on order.events, and nobody added it [e3]");
  });

  test("of a transaction whose end nobody heard it cannot be said without the workload's table", () => {
    const published = { broker: [...wellRead.broker!, copy(three)] };
    expect(short(verdict(lostAnswer, published))).toMatch(/^broken/);
    expect(short(verdict(lostAnswer, { ...published, written: null }))).toMatch(/^unknown: nobody knows whether event e3/);
    // A writer that died before it could write down the end, whether or not the database had failed over before.
    const died = lostAnswer.slice(0, -1);
    const rolled = /#3 is on order.events, and its transaction was rolled back/;
    expect(short(verdict(died, published))).toMatch(rolled);
    const over = entry(0.5, "nemesis", "ok", { op: "fault", fault: "failover", target: "store", copies: 0, scope: "all" });
    expect(short(verdict([fault(0.2, "failover", 0, { target: "store" }), over, ...died], published))).toMatch(rolled);
    expect(short(verdict([...died, failover], published))).toBe("holds, 1 × published-before-the-database-forgot");
  });

  test("what was published before the database forgot it is legal after a fail-over", () => {
    const forgotten = { written: wellRead.written!.slice(0, 1) };
    expect(short(verdict([...well, failover], forgotten))).toBe("holds, 3 × published-before-the-database-forgot");
  });
});

describe("order", () => {
  const verdict = verdictOf.bind(null, "order");
  const swapped = { broker: [copy(two), copy(one)] };

  test("first copies ascend; later copies may be anywhere", () => {
    expect(short(verdict(well, { broker: [copy(one), copy(two), copy(one)] }))).toBe("holds");
    expect(short(verdict(well, swapped))).toBe("broken 1 times: Order 1 on order.events: #1 came after #2 [e2 e1]");
  });

  test("of several, the two that are nearest are told", () => {
    const broker = [copy(two), copy(three), copy(one)];
    expect(short(verdict([...well, ...added([three], 3)], { broker: [copy(three), ...broker] }))).toMatch(/#2 came after #3 \[e3 e2\]$/);
  });

  test("effects ascend at each consumer", () => {
    expect(short(verdict(well, { effects: [effect(two), effect(one)] }))).toBe(
      "broken 1 times: Order 1 of order.events at stock: #1 came after #2 [e2 e1]",
    );
    expect(short(verdict(well, { effects: [effect(two, "mail"), effect(one)] }))).toBe("holds");
  });

  test("other aggregates and other topics have orders of their own", () => {
    expect(short(verdict(well, { broker: [copy(two), { ...copy(one), topic: "other" }] }))).toBe("holds");
    expect(short(verdict(well, { broker: [copy(two), { ...copy(one), aggregate: "Order 2" }] }))).toBe("holds");
  });

  test("a delayed event, and one that was skipped, may come late", () => {
    const delayed = [...well.filter(({ op }) => op !== "add"), ...added([{ ...one, delayed: true }, two])];
    expect(short(verdict(delayed, swapped))).toBe("holds, 1 × joins-late");
    // It takes nobody with it.
    const four = event("e4", 4, { delayed: true });
    const more = [...well, ...added([three, four], 3)];
    expect(short(verdict(more, { broker: [copy(four), copy(three), copy(one), copy(two)] }))).toMatch(/#\d came after #3/);
    expect(short(verdict(more, { broker: [copy(four), copy(one), copy(two), copy(three)] }))).toBe("holds");
    const parked = { ...held("e1"), as: "parked" as const };
    const skip = entry(2, "relay-1", "ok", { op: "settle", began: 1_900, outcomes: [{ ...parked, release: true }], settled: 1 });
    expect(short(verdict([...well, skip], swapped))).toBe("holds, 1 × skipped-then-redriven");
    const block = entry(2, "relay-1", "ok", { op: "settle", began: 1_900, outcomes: [{ ...parked, release: false }], settled: 1 });
    expect(short(verdict([...well, block], swapped))).toMatch(/^broken/);
  });

  test("an event that the consumer gave up may be applied late, when another copy of it comes", () => {
    const late = { effects: [effect(two), effect(one)], letters: [{ consumer: "stock", id: "e1" }] };
    expect(short(verdict(well, late))).toBe("holds, 1 × parked-then-copied");
    expect(short(verdict(well, { ...late, letters: [{ consumer: "mail", id: "e1" }] }))).toMatch(/^broken/);
  });

  test("a letter in the inbox has a mark: its event is applied late only after an operator has redriven the letter", () => {
    const swapped = { effects: [effect(two), effect(one)] };
    expect(short(verdict(well, { ...swapped, letters: [{ consumer: "stock", id: "e1", marked: true }] }))).toMatch(/^broken/);
    expect(short(verdict([...well, redrive(3), applied(4)], swapped))).toBe("holds, 1 × parked-then-redriven");
    expect(short(verdict([...well, applied(3), redrive(4)], swapped))).toMatch(/^broken/);
    expect(short(verdict([...well, redrive(3, "mail"), applied(4)], swapped))).toMatch(/^broken/);
  });

  test("is unknown without the broker's log", () => {
    expect(short(verdict(well, { broker: null }))).toMatch(/^unknown/);
  });
});

describe("one effect", () => {
  const verdict = verdictOf.bind(null, "one effect");

  test("a second effect of one event at one consumer breaks it; the fewest are told", () => {
    const effects = [effect(one), effect(one), effect(one), effect(two), effect(two), effect(two, "mail")];
    expect(short(verdict(well, { effects }))).toBe("broken 2 times: Order 1 #2 had 2 effects at stock [e2]");
  });

  test("a letter that is still there after its event was applied from it breaks it", () => {
    const letters = [{ consumer: "stock", id: "e1", marked: true }];
    expect(short(verdict([...well, redrive(3), applied(4)], { letters }))).toBe(
      "broken 1 times: event e1 was applied from its letter at stock, and the letter is still there [e1]",
    );
    expect(short(verdict([...well, redrive(3)], { letters }))).toBe("holds");
    expect(short(verdict([...well, redrive(3), applied(4)], {}))).toBe("holds");
  });

  test("is unknown without the effects", () => {
    expect(short(verdict(well, { effects: null }))).toMatch(/^unknown/);
  });
});

describe("few duplicates", () => {
  const verdict = verdictOf.bind(null, "few duplicates");
  const doubled = { broker: [copy(one), copy(two), copy(one), copy(two)] };
  /** The relay dies between publish and settle. */
  const crashed = (copies: number): readonly Entry[] => [...well.filter(({ op }) => op !== "settle"), fault(1.35, "crash", copies)];

  test("there are none without a fault", () => {
    expect(short(verdict(well, doubled))).toMatch(/^broken 3 times: Order 1 #1 has 2 copies, and 0 faults can copy \[e1\]$/);
    expect(short(verdict([...well, fault(2, "pause", 0)], doubled))).toMatch(/0 faults can copy/);
  });

  test("a broker that lets the time for its answer pass explains a copy of what it was asked, where that is nobody's fault", () => {
    const answer = (at: number): readonly Entry[] => [
      ...well.filter(({ op }) => op !== "settle" && op !== "publish"),
      sent(1.2, "invoked", [held("e1")]),
      sent(at, "unknown", [held("e1")]),
      sent(4, "invoked", [held("e1"), held("e2")]),
    ];
    const once = { broker: [copy(one), copy(two), copy(one)] };
    const judged = (history: readonly Entry[], broker: Partial<Reads> = once): string =>
      short(verdict(history, broker, { answerMs: 1_500 }));
    expect(judged(answer(2.7))).toBe("holds, 1 × unanswered-publish");
    expect(judged(answer(2.6))).toMatch(/^broken 2 times: Order 1 #1 has 2 copies/);
    expect(short(verdict(answer(2.7), once))).toMatch(/^broken/);
    // It explains no second copy, and no other event's.
    const thrice = { broker: [copy(one), copy(one), copy(one), copy(two)] };
    expect(judged(answer(2.7), thrice)).toMatch(/^broken 2 times: Order 1 #1 has 3 copies/);
    expect(judged(answer(2.7), doubled)).toMatch(/^broken 2 times: Order 1 #2 has 2 copies/);
    // What a fault explains is that fault's, and is not counted twice: a third copy has no reason.
    const harmed = [
      ...answer(2.7).filter(({ at }) => at < 4_000),
      fault(1.2, "black hole", 2),
      entry(2.7, "nemesis", "ok", { op: "fault", fault: "black hole", target: "relay-1", copies: 2, scope: "all" }),
      sent(4, "invoked", [held("e1")]),
      sent(4.1, "ok", [held("e1")]),
      entry(4.2, "relay-1", "ok", { op: "settle", began: 4_150, outcomes: [{ ...held("e1"), as: "published" }], settled: 1 }),
      sent(20, "invoked", [held("e1")]),
    ];
    expect(judged(harmed)).toBe("holds, 1 × explained-copy");
    expect(judged([...harmed, fault(30, "crash", 6)], thrice)).toMatch(/^broken 1 times: Order 1 #1 has 3 copies, and was settled/);
    // The last one's silence is no reason for what was there before.
    const last = sent(6, "unknown", [held("e1")]);
    expect(judged([...answer(2.6), last])).toMatch(/^broken/);
  });

  test("a fault explains as many as were in its window, and one for each event", () => {
    expect(short(verdict(crashed(2), doubled))).toBe("holds, 2 × explained-copy");
    expect(short(verdict(crashed(1), doubled))).toBe("broken 1 times: there are 2 copies too many, and the faults explain 1 [e1 e2]");
    const thrice = { broker: [copy(one), copy(one), copy(one), copy(two)] };
    expect(short(verdict(crashed(6), thrice))).toBe("broken 1 times: Order 1 #1 has 3 copies, and 1 faults can copy [e1]");
  });

  test("a fault explains what was not settled when it came, and nothing else", () => {
    const again = sent(5, "invoked", [held("e1"), held("e2")]);
    expect(short(verdict([...well, fault(4, "crash", 2), again], doubled))).toMatch(
      /^broken 2 times: Order 1 #1 has 2 copies, and was settled before anything broke/,
    );
    expect(short(verdict([...crashed(2), again], doubled))).toBe("holds, 2 × explained-copy");
    // Its consequences last for as long as leases and publishes do, and no longer.
    const early = (at: number): readonly Entry[] => [
      fault(at, "crash", 2),
      entry(at + 0.1, "nemesis", "ok", { op: "fault", fault: "crash", target: "relay-1", copies: 2, scope: "all" }),
    ];
    expect(short(verdict([...early(0.5), ...well, again], doubled))).toBe("holds, 2 × explained-copy");
    expect(short(verdict([...early(0), ...well, again], doubled))).toMatch(/settled before anything broke/);
    // What was refused is no copy: the two that were sent are.
    const refused = sent(5.1, "failed", [held("e1"), held("e2")]);
    const late = [again, { ...again, at: 6_000 }];
    expect(short(verdict([...well, fault(5.5, "crash", 2), late[0]!, refused, late[1]!], doubled))).toMatch(/^broken/);
    // Of three that were sent, the one that nobody answered may not have come there.
    const over = entry(1.36, "nemesis", "ok", { op: "fault", fault: "crash", target: "relay-1", copies: 2, scope: "all" });
    const thrice = [...crashed(2), over, again, { ...again, at: 20_000 }];
    expect(short(verdict(thrice, doubled))).toBe("holds, 2 × explained-copy");
    // A fail-over takes back what was settled.
    expect(short(verdict([...well, fault(4, "failover", 2), again], doubled))).toBe("holds, 2 × explained-copy");
  });

  test("is unknown when nobody knows what a fault may cause", () => {
    expect(short(verdict([...well, fault(2, "crash", null)]))).toMatch(/^unknown: nobody knows how many copies the fault crash/);
  });
});
