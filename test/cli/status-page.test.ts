import { describe, expect, test } from "vitest";
import { page } from "../../src/cli/commands/status.ts";
import type { KnownConsumer } from "../../src/observe/known.ts";
import { verdictsOf } from "../../src/cli/verdict.ts";
import { createOutput } from "../../src/cli/output.ts";
import type { Status } from "../../src/contracts/operator.ts";

const status: Status = {
  states: { PENDING: 1, PUBLISHING: 2, PUBLISHED: 20_012_345, FAILED: 0, BLOCKED: 134_500, DEAD: 0, DISCARDED: 0 },
  estimated: ["PUBLISHED", "BLOCKED"],
  oldestUnpublishedMs: null,
  oldest: { claimableMs: null, blockedMs: null, deadMs: null, types: [] },
  relays: [],
  lanes: { total: 64, owned: 0, free: 64 },
  holds: { aggregates: 3, blocked: 134_500, list: [] },
  breakers: [],
  window: { events: 0, suspects: 0 },
  dead: [],
  schemaVersion: 2,
};

test("status says in words which counts are estimates", () => {
  const text = page(createOutput({ write: () => true, colour: false }, false), status, {
    verdicts: [],
    warnings: [],
    letters: [],
    unread: null,
    named: null,
    lag: null,
    known: { consumers: [], asked: false },
  }).join("\n");
  expect(text).toMatch(/PUBLISHED +about 20,000,000/);
  expect(text).toMatch(/3 aggregates, about 135,000 blocked events/);
  expect(text).toMatch(/PENDING +1$/m);
});

describe("the verdict", () => {
  const now = Date.UTC(2030, 0, 1);
  const minute = 60_000;
  const ago = (ms: number): Date => new Date(now - ms);
  const live = { relay: "r", live: true, expiresAt: ago(-10_000), lanes: [], window: 0, windowLimit: 1_500 };
  const none = { claimableMs: null, blockedMs: null, deadMs: null, types: [] };
  const well: Status = {
    ...status,
    states: { PENDING: 0, PUBLISHING: 0, PUBLISHED: 5, FAILED: 0, BLOCKED: 0, DEAD: 0, DISCARDED: 0 },
    estimated: [],
    relays: [live],
    holds: { aggregates: 0, blocked: 0, list: [] },
  };
  const pending = (events: number, claimableMs: number | null): Partial<Status> => ({
    states: { ...well.states, PENDING: events },
    oldest: { ...none, claimableMs },
  });
  const hold = {
    ...{
      aggregateType: "Order",
      aggregateId: "o-1",
      why: "DEAD: TOO_LARGE: 2 MB",
      destination: null,
      causeId: "e-1",
      since: ago(minute),
      releasing: false,
    },
  };
  const topic = { destination: "order.events", why: "no leader", since: ago(10 * minute), aggregates: 3 };

  test.each<[string, Partial<Status>, readonly string[]]>([
    ["nothing waits", {}, ["all is well: 1 relay runs, nothing waits"]],
    ["little waits", pending(12, 500), ["all is well: 1 relay runs, 12 events wait, none too long"]],
    ["no relay, nothing to do", { relays: [{ ...live, live: false }] }, ["no relay is running, and nothing waits"]],
    [
      "no relay, and events for a moment",
      { relays: [], ...pending(1, 500) },
      ["no relay is running and 1 event waits, the oldest for 500ms"],
    ],
    [
      "no relay, and events for long",
      { relays: [], ...pending(12, 6 * minute) },
      ["! no relay is running and 12 events wait, the oldest for 6m"],
    ],
    ["no relay, and delayed events", { relays: [], ...pending(2, null) }, ["no relay is running and 2 events wait, none of them is due"]],
    ["relays that are late", pending(12, 6 * minute), ["! relays are running, but 12 events wait, the oldest for 6m"]],
    [
      "a blocked aggregate, and its dead event",
      {
        states: { ...well.states, BLOCKED: 2, DEAD: 1 },
        oldest: { ...none, blockedMs: minute, deadMs: 2 * minute },
        holds: { aggregates: 1, blocked: 2, list: [hold] },
        dead: [{ error: "TOO_LARGE: 2 MB", example: "e-1", events: 1, oldest: ago(2 * minute) }],
      },
      ["! 1 event is dead, the oldest for 2m: TOO_LARGE: 2 MB", "one aggregate (Order o-1) is blocked by event e-1: DEAD: TOO_LARGE: 2 MB"],
    ],
    [
      "aggregates that have been blocked for long",
      {
        oldest: { ...none, blockedMs: 6 * minute },
        holds: { aggregates: 140, blocked: 200, list: [hold, { ...hold, aggregateId: "o-2" }] },
      },
      ["! 140 aggregates are blocked; the first is Order o-1, by event e-1: DEAD: TOO_LARGE: 2 MB"],
    ],
    [
      "a topic that is away, whose aggregates are not told a second time",
      {
        oldest: { ...none, blockedMs: 6 * minute },
        breakers: [topic],
        holds: { aggregates: 3, blocked: 3, list: [{ ...hold, destination: "order.events", why: "no leader" }] },
      },
      ["! order.events has taken no events for 10m, and 3 aggregates wait for it: no leader"],
    ],
  ])("on %s", (_, more, expected) => {
    const inbox = { consumers: [], groups: [], known: { consumers: [], asked: false } };
    const verdicts = verdictsOf({ ...well, ...more }, inbox, now, { maxAgeMs: 5 * minute, maxLag: 100 });
    expect(verdicts.map(({ failing, text }) => `${failing ? "! " : ""}${text}`)).toEqual(expected);
  });

  const shipping = { consumer: "shipping", topic: "order.events", running: true, seenAt: new Date(now), messages: 0, error: null };
  const gone = { ...shipping, running: false, seenAt: new Date(now - 6 * minute) };
  const elsewhere = { ...shipping, running: null, seenAt: null };
  const unasked = { messages: null };
  test.each<[what: string, known: Partial<KnownConsumer>, asked: boolean, expected: readonly string[]]>([
    ["one that runs and is done", shipping, true, ["all is well: 1 relay runs, nothing waits"]],
    ["one that runs, without a broker to ask", { ...shipping, ...unasked }, false, ["all is well: 1 relay runs, nothing waits"]],
    ["one that runs and is a little behind", { ...shipping, messages: 100 }, true, ["shipping is 100 messages behind on order.events"]],
    ["one that runs and is far behind", { ...shipping, messages: 101 }, true, ["! shipping is 101 messages behind on order.events"]],
    [
      "one that is gone while messages wait",
      { ...gone, messages: 6 },
      true,
      ["! shipping is 6 messages behind on order.events, and no subscriber of it has run for 6m"],
    ],
    [
      "one that was stopped a moment ago",
      { ...gone, messages: 1, seenAt: new Date(now - minute) },
      true,
      ["shipping is 1 message behind on order.events, and no subscriber of it has run for 1m"],
    ],
    [
      "one that is gone while nothing waits",
      gone,
      true,
      ["nothing waits for shipping on order.events, but no subscriber of it has run for 6m"],
    ],
    [
      "one that is gone, without a broker to ask",
      { ...gone, ...unasked },
      false,
      ["! shipping reads order.events, but no subscriber of it has run for 6m: with --broker URL, status says how far it is behind"],
    ],
    [
      "one whose place is gone too",
      { ...gone, ...unasked },
      true,
      ["shipping has no place in order.events, or the broker cannot tell, and no subscriber of it has run for 6m"],
    ],
    [
      "a broker that does not answer",
      { ...gone, ...unasked, error: "connect ECONNREFUSED" },
      true,
      ["! how far shipping is behind on order.events is not known, and no subscriber of it has run for 6m: connect ECONNREFUSED"],
    ],
    [
      "one of another database that gets no further",
      { ...elsewhere, messages: 6 },
      true,
      ["! shipping is 6 messages behind on order.events, and got no further in 3s"],
    ],
    [
      "one of another database without a place",
      { ...elsewhere, ...unasked },
      true,
      ["shipping has no place in order.events yet, or the broker cannot tell how far behind it is"],
    ],
    ["one of another database that is done", elsewhere, true, ["all is well: 1 relay runs, nothing waits"]],
  ])("on a consumer: %s", (_, known, asked, expected) => {
    const inbox = { consumers: [], groups: [], known: { consumers: [{ ...shipping, ...known }], asked } };
    const verdicts = verdictsOf(well, inbox, now, { maxAgeMs: 5 * minute, maxLag: 100 });
    expect(verdicts.map(({ failing, text }) => `${failing ? "! " : ""}${text}`)).toEqual(expected);
  });

  test("ends no remedy in its middle, and neither do the lists below it", () => {
    const remedy = "create it, with a rule that gives this user the right to write there: waybill migrate --broker … --topics order.events";
    const why = `DESTINATION_UNAVAILABLE: NOT_FOUND - no queue 'waybill.shipping.order.events.with.a.long.name' in vhost '${"v".repeat(60)}': ${remedy}`;
    const troubled: Status = {
      ...well,
      states: { ...well.states, DEAD: 1, BLOCKED: 1 },
      breakers: [{ ...topic, why }],
      holds: { aggregates: 4, blocked: 1, list: [{ ...hold, why }] },
      dead: [{ error: why, example: "e-1", events: 1, oldest: ago(minute) }],
    };
    const group = { consumer: "billing", topic: "order.events", letters: 1, redriven: 0, oldest: ago(minute), error: why, example: "e-2" };
    const letters = [{ topic: "order.events", letters: 1, redriven: 0, oldest: ago(minute) }];
    const consumer = { consumer: "billing", letters, handled: 1, retrying: null, reads: [] };
    const verdicts = verdictsOf(troubled, { consumers: [consumer], groups: [group], known: { consumers: [], asked: false } }, now, {
      maxAgeMs: 5 * minute,
      maxLag: 100,
    });
    expect(verdicts.map(({ about, text }) => [about, text.includes(remedy)])).toEqual(
      ["topic", "dead", "letters", "blocked"].map((about) => [about, true]),
    );
    const beside = {
      verdicts: [],
      warnings: [],
      letters: [group],
      unread: null,
      named: null,
      lag: null,
      known: { consumers: [], asked: false },
    };
    const lines = page(createOutput({ write: () => true, colour: false }, false), troubled, beside);
    expect(lines.filter((line) => line.includes("DESTINATION_UNAVAILABLE")).map((line) => line.endsWith(remedy))).toEqual(
      Array.from({ length: 4 }, () => true),
    );
  });
});
