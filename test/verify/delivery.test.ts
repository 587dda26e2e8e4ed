import { describe, expect, test } from "vitest";
import { check } from "../../src/verify/check.ts";
import { invariants } from "../../src/verify/verdict.ts";
import { added, bounds, copy, effect, entry, event, fault, held, one, short, two, verdictOf, well, wellRead } from "./run.ts";

const three = event("e3", 3);
const rolledBack = [...well, ...added([three], 3, "failed")];
const lostAnswer = [...well, ...added([three], 3, "unknown")];
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
    expect(short(verdict(well, { effects: [effect(one)], letters: [{ consumer: "stock", id: "e2" }] }))).toBe(
      "holds, 1 × parked-by-the-consumer",
    );
  });

  test("what is dead, discarded, or still waits is not lost", () => {
    const outbox = (state: "DEAD" | "DISCARDED" | "BLOCKED") => ({
      broker: [copy(one)],
      effects: [effect(one)],
      outbox: [{ id: "e2", aggregate: "Order 1", state }],
    });
    expect(short(verdict(well, outbox("DEAD")))).toBe("holds, 1 × dead");
    expect(short(verdict(well, outbox("DISCARDED")))).toBe("holds, 1 × discarded");
    expect(short(verdict(well, outbox("BLOCKED")))).toBe("holds");
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

  test("an event that nobody added is one", () => {
    expect(short(verdict(well, { broker: [copy(three)] }))).toBe("broken 1 times: event e3 is on order.events, and nobody added it [e3]");
  });

  test("of a transaction whose end nobody heard it cannot be said without the workload's table", () => {
    const published = { broker: [...wellRead.broker!, copy(three)] };
    expect(short(verdict(lostAnswer, published))).toMatch(/^broken/);
    expect(short(verdict(lostAnswer, { ...published, written: null }))).toMatch(/^unknown: nobody knows whether event e3/);
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

  test("is unknown without the effects", () => {
    expect(short(verdict(well, { effects: null }))).toMatch(/^unknown/);
  });
});

describe("few duplicates", () => {
  const verdict = verdictOf.bind(null, "few duplicates");
  const doubled = { broker: [copy(one), copy(two), copy(one), copy(two)] };

  test("there are none without a fault", () => {
    expect(short(verdict(well, doubled))).toMatch(/^broken 3 times: Order 1 #1 has 2 copies, and 0 faults can copy \[e1\]$/);
    expect(short(verdict([...well, fault(2, "pause", 0)], doubled))).toMatch(/0 faults can copy/);
  });

  test("a fault explains as many as were in its window, and one for each event", () => {
    expect(short(verdict([...well, fault(2, "crash", 2)], doubled))).toBe("holds, 2 × explained-copy");
    expect(short(verdict([...well, fault(2, "crash", 1)], doubled))).toBe(
      "broken 1 times: there are 2 copies too many, and the faults explain 1 [e1 e2]",
    );
    const thrice = { broker: [copy(one), copy(one), copy(one), copy(two)] };
    expect(short(verdict([...well, fault(2, "crash", 6)], thrice))).toBe(
      "broken 1 times: Order 1 #1 has 3 copies, and 1 faults can copy [e1]",
    );
  });

  test("is unknown when nobody knows what a fault may cause", () => {
    expect(short(verdict([...well, fault(2, "crash", null)]))).toMatch(/^unknown: nobody knows how many copies the fault crash/);
  });
});
