import { describe, expect, test } from "vitest";
import { judge, type Arrival, type Committed, type Facts, type Trouble, type Wrong } from "./judge.ts";

const event = (id: string, seq: number, more: Partial<Committed> = {}): Committed => ({
  ...{ id, seq, aggregate: "Order/1", insertedAt: seq * 10, dueAt: null },
  ...more,
});
const sent = (id: string, at: number, more: Partial<Arrival> = {}): Arrival => ({
  ...{ id, at, relay: "r1", stored: true, answered: true },
  ...more,
});
const trouble = (more: Partial<Trouble>): Trouble => ({ kind: "kill", relays: ["r1"], from: 100, until: 100, copies: 2, ...more });
const quiet: Facts["rest"] = { reached: true, states: new Map(), vanished: [], invented: [], slots: [] };

const wrongs = (facts: Partial<Facts>): readonly Wrong[] =>
  judge({ committed: [], arrivals: [], troubles: [], rest: quiet, earlier: new Map(), alarms: [], ...facts }).findings.map(
    ({ wrong }) => wrong,
  );

const [a, b, c] = [event("a", 1), event("b", 2), event("c", 3)];

test("a history in order holds", () => {
  expect(wrongs({ committed: [a, b, c], arrivals: [sent("a", 1), sent("b", 2), sent("c", 3)] })).toEqual([]);
});

test("what was committed and never came is lost, whatever its row says", () => {
  expect(wrongs({ committed: [a, b], arrivals: [sent("a", 1)] })).toEqual(["lost"]);
  expect(wrongs({ committed: [a], arrivals: [sent("a", 1, { stored: false })] })).toEqual(["lost"]);
});

test("what was never committed is a phantom; what was judged before is a copy", () => {
  expect(wrongs({ arrivals: [sent("x", 1)] })).toEqual(["phantom"]);
  expect(wrongs({ arrivals: [sent("x", 1, { stored: false })] })).toEqual(["phantom"]);
  const again = { arrivals: [sent("x", 110)], earlier: new Map([["x", sent("x", 1)]]) };
  expect(wrongs(again)).toEqual(["copy"]);
  expect(wrongs({ ...again, troubles: [trouble({})] })).toEqual([]);
});

test("what came with other bytes is changed", () => {
  expect(wrongs({ committed: [a], arrivals: [sent("a", 1, { changed: "payload" })] })).toEqual(["changed"]);
});

describe("order", () => {
  test("the first arrivals of an aggregate ascend; copies may come at any time", () => {
    expect(wrongs({ committed: [a, b], arrivals: [sent("b", 1), sent("a", 2)] })).toEqual(["order"]);
    const copy = [sent("a", 90), sent("b", 91), sent("a", 110)];
    expect(wrongs({ committed: [a, b], arrivals: copy, troubles: [trouble({})] })).toEqual([]);
  });

  test("aggregates do not wait for each other", () => {
    expect(wrongs({ committed: [a, event("b", 2, { aggregate: "Order/2" })], arrivals: [sent("b", 1), sent("a", 2)] })).toEqual([]);
  });

  test("a follower may not even be tried before a refused event is stored", () => {
    const refused = sent("a", 1, { stored: false });
    expect(wrongs({ committed: [a, b], arrivals: [refused, sent("a", 3), sent("b", 4)] })).toEqual([]);
    expect(wrongs({ committed: [a, b], arrivals: [refused, sent("b", 2), sent("a", 3)] })).toEqual(["order"]);
    expect(wrongs({ committed: [a, b], arrivals: [refused, sent("b", 2, { stored: false }), sent("a", 3), sent("b", 4)] })).toEqual([
      "order",
    ]);
  });

  test("one event far ahead of many is one finding, and one far behind is a finding for each that passed it", () => {
    expect(wrongs({ committed: [a, b, c], arrivals: [sent("c", 1), sent("a", 2), sent("b", 3)] })).toEqual(["order"]);
    expect(wrongs({ committed: [a, b, c], arrivals: [sent("b", 1), sent("c", 2), sent("a", 3)] })).toEqual(["order", "order"]);
  });

  test("a delayed event is passed by what was added before it was due, and by nothing else", () => {
    const late = event("a", 1, { dueAt: 25 });
    expect(wrongs({ committed: [late, b, c], arrivals: [sent("b", 1), sent("a", 2), sent("c", 3)] })).toEqual([]);
    expect(wrongs({ committed: [late, b, c], arrivals: [sent("b", 1), sent("c", 2), sent("a", 3)] })).toEqual(["order"]);
  });

  test("a delayed event waits for what was added before it", () => {
    expect(wrongs({ committed: [a, event("b", 2, { dueAt: 25 })], arrivals: [sent("b", 1), sent("a", 2)] })).toEqual(["order"]);
  });
});

describe("copies", () => {
  const committed = [a, b, c];
  const firsts = [sent("a", 90), sent("b", 91), sent("c", 92)];

  test("without a trouble there is none", () => {
    expect(wrongs({ committed: [a], arrivals: [sent("a", 1), sent("a", 2)] })).toEqual(["copy"]);
  });

  test("a trouble explains what came before it and again after it, from the relays that it hit", () => {
    const arrivals = [sent("a", 90), sent("a", 110, { relay: "r2" })];
    const of = (more: Partial<Trouble>) => wrongs({ committed: [a], arrivals, troubles: [trouble(more)] });
    expect(of({})).toEqual([]);
    expect(of({ relays: "all" })).toEqual([]);
    expect(of({ relays: ["r3"] })).toEqual(["copy"]);
    expect(of({ from: 120, until: 130 })).toEqual(["copy"]);
    expect(of({ from: 70, until: 80 })).toEqual(["copy"]);
  });

  test("a trouble explains a window, and not more", () => {
    const arrivals = [...firsts, ...["a", "b", "c"].map((id, at) => sent(id, 110 + at, { relay: "r2" }))];
    expect(wrongs({ committed, arrivals, troubles: [trouble({ copies: 3 })] })).toEqual([]);
    expect(wrongs({ committed, arrivals, troubles: [trouble({ copies: 2 })] })).toEqual(["copies"]);
    expect(wrongs({ committed, arrivals, troubles: [trouble({ copies: 2 }), trouble({ copies: 1 })] })).toEqual([]);
  });

  test("troubles share copies so that each has no more than its share, whichever copy comes first", () => {
    const [early, late] = [
      trouble({ kind: "kill", copies: 1 }),
      trouble({ kind: "crash", from: 95, until: 120, relays: "all", copies: 1 }),
    ];
    const arrivals = [sent("a", 90), sent("b", 105), sent("a", 110, { relay: "r2" }), sent("b", 111, { relay: "r2" })];
    for (const troubles of [
      [early, late],
      [late, early],
    ]) {
      const judged = judge({ ...{ committed: [a, b], arrivals, troubles, rest: quiet, earlier: new Map<string, Arrival>(), alarms: [] } });
      expect(judged.findings).toEqual([]);
      expect(judged.laid.get("kill")).toEqual({ copies: 1, most: 1 });
    }
  });

  test("a message that was never answered may come again", () => {
    const arrivals = [sent("a", 1, { answered: false }), sent("a", 2)];
    const { findings, copies, unanswered } = judge({
      ...{ committed: [a], arrivals, troubles: [], rest: quiet, earlier: new Map<string, Arrival>(), alarms: [] },
    });
    expect({ findings, copies, unanswered }).toEqual({ findings: [], copies: 1, unanswered: 1 });
  });
});

describe("the tables at rest", () => {
  const of = (rest: Partial<Facts["rest"]>) => wrongs({ committed: [a], arrivals: [sent("a", 1)], rest: { ...quiet, ...rest } });

  test("every row is PUBLISHED, none is gone, and none was made up", () => {
    expect(of({})).toEqual([]);
    expect(of({ states: new Map([["a", "PENDING"]]) })).toEqual(["state"]);
    expect(of({ reached: false, states: new Map([["a", "BLOCKED"]]) })).toEqual(["state", "state"]);
    expect(of({ vanished: ["a"] })).toEqual(["state"]);
    expect(of({ invented: ["x"] })).toEqual(["state"]);
  });

  test("there is one slot at most, and the tables know it", () => {
    expect(of({ slots: ["waybill_1"] })).toEqual([]);
    expect(of({ slots: ["waybill_1"], knownSlot: "waybill_1" })).toEqual([]);
    expect(of({ slots: [], knownSlot: null })).toEqual([]);
    expect(of({ slots: ["waybill_1"], knownSlot: null })).toEqual(["slot"]);
    expect(of({ slots: ["waybill_1", "waybill_2"] })).toEqual(["slot"]);
  });
});

test("what the play saw go wrong is a finding", () => {
  expect(wrongs({ alarms: ["relay r1 ended by itself"] })).toEqual(["alarm"]);
});
