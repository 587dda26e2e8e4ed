import { describe, expect, test } from "vitest";
import { storyOf } from "../../src/proof/judge/check.ts";
import { createRecorder, readHistory, type Entry } from "../../src/proof/judge/history.ts";
import { troublesOf } from "../../src/proof/judge/troubles.ts";
import { added, copy, entry, event, fault, healed, held, sent, short, verdictOf, well, wellRead } from "./run.ts";

const unhealed = well.filter((each) => each !== healed);

describe("nothing stuck", () => {
  const verdict = verdictOf.bind(null, "nothing stuck");
  const row = (state: "PENDING" | "FAILED" | "BLOCKED" | "DEAD", id = "e2", aggregate = "Order 1") => ({ id, aggregate, state });

  test("after healing, nothing waits that nothing holds", () => {
    for (const state of ["PENDING", "FAILED", "BLOCKED"] as const)
      expect(short(verdict(well, { outbox: [row(state)] }))).toBe(
        `broken 1 times: an event of Order 1 is ${state}, and nothing holds it [e2]`,
      );
  });

  test("after healing, no redriven letter waits for its consumer", () => {
    const letter = { consumer: "stock", id: "e1", marked: true };
    expect(short(verdict(well, { letters: [letter] }))).toBe("holds");
    expect(short(verdict(well, { letters: [{ ...letter, waits: true }] }))).toBe(
      "broken 1 times: the letter of event e1 was redriven, and stock has neither applied it nor given it up again [e1]",
    );
  });

  test("behind a dead event of its own aggregate an event may wait", () => {
    const poisoned = [...well, fault(1, "poison", 0, { target: "e1" })];
    expect(short(verdict(poisoned, { outbox: [row("DEAD", "e1"), row("BLOCKED")] }))).toBe("holds, 1 × dead, 1 × blocked-behind-dead");
    expect(short(verdict(poisoned, { outbox: [row("DEAD", "e1", "Order 2"), row("BLOCKED")] }))).toMatch(/^broken/);
    expect(short(verdict(poisoned, { outbox: [row("DEAD", "e1"), row("PENDING")] }))).toMatch(/^broken/);
    expect(short(verdict(well, { outbox: [row("DEAD", "e1"), row("BLOCKED")] }))).toMatch(
      /#1 is DEAD, and nothing that was broken was its own/,
    );
  });

  test("an event may be given up that three relays had alone in hand when they were killed, and no sooner", () => {
    const claimed = (relay: string, ids = ["e1"]): Entry => entry(2, relay, "ok", { op: "claim", claims: ids.map((id) => held(id)) });
    const outbox = [row("DEAD", "e1")];
    const killed = [...well, claimed("relay-1.1"), claimed("relay-1.2")];
    expect(short(verdict(killed, { outbox }))).toMatch(/#1 is DEAD, and nothing that was broken was its own/);
    expect(short(verdict([...killed, claimed("relay-1.3")], { outbox }))).toBe("holds, 1 × dead");
    expect(short(verdict([...killed, claimed("relay-1.3", ["e1", "e2"])], { outbox }))).toMatch(/^broken/);
    const settled = entry(3, "relay-1.3", "ok", { op: "settle", began: 3, outcomes: [{ ...held("e1"), as: "retry" }], settled: 1 });
    expect(short(verdict([...killed, claimed("relay-1.3"), settled], { outbox }))).toMatch(/^broken/);
  });

  test("is unknown when nothing was healed", () => {
    expect(short(verdict(unhealed))).toMatch(/^unknown: nobody healed/);
  });
});

describe("isolation", () => {
  const verdict = verdictOf.bind(null, "isolation");
  /** Added at 1 s, published at 5 s. */
  const late = well.map((each) => (each.op === "publish" && each.phase === "ok" ? { ...each, at: 5_000 } : each));
  const trouble = (from: number, to: number, scope: "all" | { topics: string[] } | { aggregates: string[] }): Entry[] => [
    fault(from, "refusing", 0, { scope }),
    { ...fault(to, "refusing", 0, { scope }), phase: "ok" },
  ];
  const during = (...troubles: Entry[]): Entry[] => [...late, ...troubles].sort((a, b) => a.at - b.at);

  test("an event that nothing harms is published in time", () => {
    expect(short(verdict(late))).toBe(
      "broken 2 times: Order 1 #1 was published after 3990 ms, though nothing that was broken was its own [e1]",
    );
    expect(short(verdict(during(...trouble(0.5, 4, { topics: ["other"] }))))).toMatch(/^broken/);
    expect(short(verdict(during(...trouble(0.5, 4, { aggregates: ["Order 2"] }))))).toMatch(/^broken/);
  });

  test("what harms its topic, its aggregate or everything excuses it, until it is over and recovered from", () => {
    for (const scope of ["all", { topics: ["order.events"] }, { aggregates: ["Order 1"] }] as const)
      expect(short(verdict(during(...trouble(0.5, 4, scope as "all"))))).toBe("holds, 2 × harmed-by-a-fault");
    const before = late.map((each) => (each.op === "add" ? { ...each, at: each.at + 3_000 } : { ...each, at: each.at + 4_000 }));
    expect(short(verdict([...trouble(0, 0.5, "all"), ...before]))).toMatch(/^broken/);
  });

  test("is unknown when nobody saw when it was published", () => {
    expect(short(verdict(well.filter(({ op }) => op !== "publish")))).toMatch(/^unknown: event e1 is in the broker/);
  });
});

describe("fencing", () => {
  const verdict = verdictOf.bind(null, "fencing");
  const took = (at: number, process: string, epoch: number, began = at): Entry =>
    entry(at, process, "ok", { op: "lease", what: "take", began: began * 1_000, lanes: [[5, epoch]] });
  const settled = (began: number, settled: number, epoch = 1): Entry =>
    entry(4, "relay-1", "ok", { op: "settle", began: began * 1_000, outcomes: [{ ...held("e1", 5, epoch), as: "published" }], settled });

  test("nothing is settled under an epoch that is over", () => {
    const takeover = [...well, took(3, "relay-2", 2)];
    expect(short(verdict([...takeover, settled(3.5, 0)]))).toBe("holds");
    expect(short(verdict([...takeover, settled(3.5, 1)]))).toBe(
      "broken 1 times: relay-1 settled 1 events, and had only 0 under an epoch that was not over [e1]",
    );
    // It began before the take-over: the store decides which came first.
    expect(short(verdict([...takeover, settled(2.5, 1)]))).toBe("holds");
    expect(short(verdict([...takeover, settled(3.5, 1, 2)]))).toBe("holds");
  });

  test("epochs rise, and each has one owner", () => {
    expect(short(verdict([...well, took(3, "relay-2", 1)]))).toBe(
      "broken 1 times: relay-2 took lane 5 under epoch 1, which relay-1 had under 1 before []",
    );
    expect(short(verdict([...well, took(3, "relay-2", 3), took(3.5, "relay-3", 2)]))).toBe(
      "broken 1 times: relay-3 took lane 5 under epoch 2, which relay-2 had under 3 before []",
    );
    expect(short(verdict([...well, fault(2.5, "failover", 0), took(3, "relay-2", 1)]))).toBe("holds");
  });

  test("one who was frozen while it took a lane may tell of it late, but not of another's epoch", () => {
    const later = [...well, took(3, "relay-2", 3)];
    expect(short(verdict([...later, took(9, "relay-3", 2, 2.5)]))).toBe("holds");
    expect(short(verdict([...later, took(9, "relay-3", 3, 2.5)]))).toMatch(/^broken/);
  });

  test("nothing is sent once one's own clock says that the lease has run out", () => {
    expect(short(verdict([...well, sent(59, "invoked", [held("e1")])]))).toBe("holds");
    expect(short(verdict([...well, sent(60.5, "invoked", [held("e1")])]))).toBe(
      "broken 1 times: relay-1 published 500 ms after its lease had run out by its own clock [e1]",
    );
  });

  test("one who was frozen between its look at the clock and its send could not know that the lease had run out", () => {
    const late = (looked: number): Entry[] => [...well, took(61, "relay-2", 2), sent(70, "invoked", [held("e1")], { looked })];
    expect(short(verdict(late(59)))).toBe("holds, 1 × frozen-before-the-send");
    expect(short(verdict(late(62)))).toMatch(/^broken 2 times: relay-1 published/);
  });

  test("nothing is sent under an epoch that is over, or without having been claimed", () => {
    const under = (lane: number, epoch: number): Entry => sent(4, "invoked", [held("e1", lane, epoch)]);
    const takeover = [...well, took(3, "relay-2", 2)];
    expect(short(verdict([...takeover, under(5, 1)]))).toMatch(
      /^broken 1 times: relay-1 published 1 events .* under an epoch that was over/,
    );
    expect(short(verdict([...takeover, under(5, 2)]))).toBe("holds");
    expect(short(verdict([...well, under(-1, -1)]))).toMatch(/^broken 1 times: relay-1 published 1 events that it had not claimed/);
  });

  test("one whose lease a fail-over forgot cannot know of it before its next renewal", () => {
    const over = [...well, fault(2.5, "failover", 0), took(3, "relay-2", 2)];
    const late = sent(4, "invoked", [held("e1", 5, 1)]);
    expect(short(verdict([...over, late]))).toBe("holds, 1 × lease-forgotten-by-the-database");
    const renewed = entry(3.5, "relay-1", "ok", { op: "lease", what: "renew", mono: 3_500, ttlMs: 60_000 });
    expect(short(verdict([...over, renewed, late]))).toMatch(/^broken 1 times: relay-1 published 1 events/);
    expect(short(verdict([...over, sent(4, "invoked", [held("e1", -1, -1)])]))).toMatch(/^broken 1 times: relay-1 published 1 events/);
  });

  test("and one that took a lane after the fail-over may lose it before it renews, and learn of it with the look behind its next renewal", () => {
    const over = [...well, fault(2.5, "failover", 0), took(3, "relay-1", 2), took(3.2, "relay-2", 3)];
    const renewed = (at: number): Entry => entry(at, "relay-1", "ok", { op: "lease", what: "renew", mono: at * 1_000, ttlMs: 60_000 });
    const late = sent(4, "invoked", [held("e1", 5, 2)]);
    expect(short(verdict([...over, renewed(3.5), late]))).toBe("holds, 1 × lease-forgotten-by-the-database");
    expect(short(verdict([...over, renewed(3.5), renewed(3.7), late]))).toMatch(/^broken 1 times: relay-1 published 1 events/);
    const held3 = [...well, fault(2.5, "failover", 0), took(3, "relay-1", 2), renewed(3.1), took(3.2, "relay-2", 3)];
    expect(short(verdict([...held3, renewed(3.5), late]))).toMatch(/^broken 1 times: relay-1 published 1 events/);
  });

  test("is unknown when nobody recorded the lease of one that published", () => {
    expect(short(verdict([...well, sent(4, "invoked", [held("e1")], { relay: "relay-7" })]))).toMatch(/^unknown: relay-7 published/);
  });

  test("is unknown when nobody recorded who took which lane", () => {
    expect(short(verdict(well.filter(({ op }) => op !== "lease")))).toMatch(/^unknown/);
  });
});

describe("bytes", () => {
  const verdict = verdictOf.bind(null, "bytes");
  const [first, second] = wellRead.broker!;

  test("are the same in the broker and at the consumer", () => {
    expect(short(verdict(well, { broker: [first!, { ...second!, sha: "other" }] }))).toBe(
      "broken 1 times: Order 1 #2 has other bytes on order.events than were added [e2]",
    );
    const delivered = entry(3, "stock-1", "ok", { op: "deliver", consumer: "stock", topic: "order.events", id: "e1", sha: "other" });
    expect(short(verdict([...well, delivered]))).toMatch(/#1 has other bytes at stock than were added \[e1\]/);
  });

  test("belong to the same aggregate and number", () => {
    expect(short(verdict(well, { broker: [first!, { ...second!, aggregate: "Order 2" }] }))).toMatch(
      /Order 1 #2 is Order 2 #2 on order.events/,
    );
  });

  test("are on the topic of their aggregate, and on no other beside it", () => {
    expect(short(verdict(well, { broker: [first!, second!, { ...second!, topic: "other" }] }))).toBe(
      "broken 1 times: Order 1 #2 is of order.events, and is on other [e2]",
    );
    const [, effect] = wellRead.effects!;
    expect(short(verdict(well, { effects: [{ ...effect!, topic: "other" }] }))).toMatch(
      /#2 is of order.events, and is at stock from other/,
    );
  });

  test("are unknown when they were not recorded", () => {
    expect(short(verdict(well, { broker: [{ ...first!, sha: "" }] }))).toBe("unknown: event e1 was recorded without its bytes");
  });
});

describe("conservation", () => {
  const verdict = verdictOf.bind(null, "conservation");

  test("status says what SQL counts", () => {
    const { truth } = wellRead.status!;
    expect(short(verdict(well, { status: { said: { ...truth, PENDING: 3, DEAD: 1 }, truth } }))).toBe(
      "broken 2 times: status says 1 DEAD, and SQL counts 0 []",
    );
  });

  test("a row that nobody settled is never deleted", () => {
    const third = [...well, ...added([event("e3", 3)], 3)];
    expect(short(verdict(well, { outbox: [] }))).toBe("holds");
    expect(short(verdict(third, { written: [...wellRead.written!, { id: "e3", aggregate: "Order 1", n: 3 }] }))).toBe(
      "broken 1 times: the row of Order 1 #3 is gone, and nobody published or discarded it [e3]",
    );
  });

  test("a row that died stays, until an operator has given it up", () => {
    const outcomes = [{ ...held("e2"), as: "parked" as const, release: false }];
    const died = [...well.filter(({ op }) => op !== "settle"), entry(1.4, "relay-1", "ok", { op: "settle", began: 1_350, outcomes })];
    const gone = { outbox: wellRead.outbox!.slice(0, 1) };
    expect(short(verdict(died, gone))).toMatch(/the row of Order 1 #2 is gone/);
    const discarded = entry(5, "operator", "ok", { op: "operate", action: "discard", ids: ["e2"] });
    expect(short(verdict([...died, discarded], gone))).toBe("holds");
  });

  test("is unknown without a status", () => {
    expect(short(verdict(well, { status: null }))).toMatch(/^unknown/);
  });
});

describe("resources", () => {
  const verdict = verdictOf.bind(null, "resources");

  test("stay within their bounds; the one that is least beyond is told", () => {
    const samples = [
      { what: "sockets", value: 90, bound: 10 },
      { what: "timers", value: 11, bound: 10 },
      { what: "memory", value: 10, bound: 10 },
    ];
    expect(short(verdict(well, { samples }))).toBe("broken 2 times: timers came to 11, and its bound is 10 []");
    expect(short(verdict(well, { samples: [{ what: "memory", value: NaN, bound: 10 }] }))).toMatch(/^broken/);
  });

  test("are unknown when nothing was measured", () => {
    expect(short(verdict(well, { samples: [] }))).toBe("unknown: nothing was measured");
  });
});

describe("no secrets", () => {
  const verdict = verdictOf.bind(null, "no secrets");

  test.each(["at postgres://app:hunter2/%é@db", "at postgres://app:hunter2%2F%25%C3%A9@db"])(
    "a secret is told in no spelling: %s",
    (text) => {
      const found = verdict(well, { outputs: [{ where: "relay-1's log", text }] });
      expect(short(found)).toBe("broken 1 times: secret 1 came out in relay-1's log []");
    },
  );

  test("nor in the history itself", () => {
    expect(short(verdict([...well, fault(2, "the password is hunter2/%é", 0)]))).toMatch(/secret 1 came out in the history/);
  });

  test("is unknown when no secret was given, or no output kept", () => {
    expect(short(verdict(well, { canaries: [] }))).toMatch(/^unknown/);
    expect(short(verdict(well, { outputs: null }))).toMatch(/^unknown/);
  });
});

describe("the history", () => {
  test("of several processes is one, by time, and a line cut short by a kill is left out", () => {
    let at = 10;
    const lines: Record<string, string> = { a: "", b: "" };
    const recorder = (name: string) =>
      createRecorder(
        name,
        () => at,
        (line) => (lines[name] += line),
      );
    const [a, b] = [recorder("a"), recorder("b")];
    a.write("ok", { op: "ack", consumer: "stock", id: "e1" });
    at = 5;
    b.write("ok", { op: "ack", consumer: "stock", id: "e2" });
    at = 20;
    b.write("ok", { op: "ack", consumer: "stock", id: "e3" });
    lines["b"] = lines["b"]!.slice(0, -9);
    const history = readHistory(Object.entries(lines).map(([name, text]) => ({ name, text })));
    expect(history.map(({ at, process }) => [at, process])).toEqual([
      [5, "b"],
      [10, "a"],
    ]);
    expect(() => readHistory([{ name: "b", text: `${lines["b"]}\n` }])).toThrow(/line 2 of the history b is no JSON/);
  });

  test("tells the story of some events", () => {
    expect(storyOf(well, ["e2"]).map(({ op, phase }) => `${op} ${phase}`)).toEqual([
      "add invoked",
      "claim ok",
      "publish invoked",
      "publish ok",
      "settle ok",
      "deliver ok",
    ]);
  });
});

test("copies of one event count once for every topic", () => {
  const [first] = wellRead.broker!;
  expect(short(verdictOf("few duplicates", well, { broker: [copy(event("e1", 1)), { ...first!, topic: "other" }] }))).toBe("holds");
});

test("of two faults of one name that overlap, neither lasts longer than the last end that was told", () => {
  const end = (at: number): Entry => ({ ...fault(at, "slow", 0), phase: "ok" });
  const troubles = troublesOf([fault(1, "slow", 0), fault(2, "slow", 0), end(3), end(4), healed]);
  expect(troubles.map(({ from, until }) => [from, until])).toEqual([
    [1_000, 3_000],
    [2_000, 4_000],
  ]);
});
