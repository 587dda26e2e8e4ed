import type { Act, Entry, HandedEvent, Phase, Written } from "../../src/proof/judge/history.ts";
import { check } from "../../src/proof/judge/check.ts";
import type { TimeBounds } from "../../src/proof/judge/isolation.ts";
import type { Reads } from "../../src/proof/judge/reads.ts";
import type { Invariant, Verdict } from "../../src/proof/judge/verdict.ts";

export const event = (id: string, n: number, more: Partial<Written> = {}): Written => ({
  id,
  aggregate: "Order 1",
  topic: "order.events",
  n,
  sha: `sha of ${id}`,
  ...more,
});

export const held = (id: string, lane = 5, epoch = 1) => ({ id, lane, epoch });

/** At this second, this process. */
export const entry = (at: number, process: string, phase: Phase, act: Act): Entry => ({ at: at * 1_000, process, phase, ...act });

/** A relay's publish; it looked at its clock at that second, or at `looked`. */
export const sent = (
  at: number,
  phase: Phase,
  events: readonly HandedEvent[],
  { relay = "relay-1", looked = at }: { readonly relay?: string; readonly looked?: number } = {},
): Entry => entry(at, relay, phase, { op: "publish", events, mono: looked * 1_000, began: looked * 1_000 });

export const fault = (at: number, name: string, copies: number | null, more: Partial<Extract<Act, { op: "fault" }>> = {}): Entry =>
  entry(at, "nemesis", "invoked", { op: "fault", fault: name, target: "relay-1", copies, scope: "all", ...more });

/** Two events of one aggregate on their whole way, without a fault. */
export const one = event("e1", 1);
export const two = event("e2", 2);
export const added = (events: readonly Written[], at = 1, end: Phase = "ok"): Entry[] => [
  entry(at, "writer-1", "invoked", { op: "add", tx: `t${at}`, events }),
  entry(at + 0.01, "writer-1", end, { op: "add", tx: `t${at}` }),
];
export const healed = entry(9, "nemesis", "ok", { op: "fault", fault: "heal", target: "everything", copies: 0, scope: "all" });
export const well: readonly Entry[] = [
  entry(0, "relay-1", "ok", { op: "lease", what: "renew", mono: 0, ttlMs: 60_000 }),
  entry(0, "relay-1", "ok", { op: "lease", what: "take", began: 0, lanes: [[5, 1]] }),
  ...added([one, two]),
  entry(1.1, "relay-1", "ok", { op: "claim", claims: [held("e1"), held("e2")] }),
  sent(1.2, "invoked", [held("e1"), held("e2")]),
  sent(1.3, "ok", [held("e1"), held("e2")]),
  entry(1.4, "relay-1", "ok", {
    op: "settle",
    began: 1_350,
    outcomes: [
      { ...held("e1"), as: "published" },
      { ...held("e2"), as: "published" },
    ],
    settled: 2,
  }),
  ...["e1", "e2"].map((id) =>
    entry(2, "stock-1", "ok", { op: "deliver", consumer: "stock", topic: "order.events", id, sha: `sha of ${id}` }),
  ),
  healed,
];

const place = ({ id, aggregate, n }: Written) => ({ id, aggregate, n });
export const copy = (written: Written) => ({ ...place(written), topic: written.topic, sha: written.sha });
export const effect = (written: Written, consumer = "stock") => ({ ...place(written), consumer, topic: written.topic });
const states = { PENDING: 0, PUBLISHING: 0, PUBLISHED: 2, FAILED: 0, BLOCKED: 0, DEAD: 0, DISCARDED: 0 };

export const wellRead: Reads = {
  written: [one, two].map(place),
  broker: [copy(one), copy(two)],
  consumers: [{ consumer: "stock", topics: ["order.events"] }],
  effects: [effect(one), effect(two)],
  letters: [],
  outbox: [one, two].map(({ id, aggregate }) => ({ id, aggregate, state: "PUBLISHED" })),
  status: { said: states, truth: states },
  samples: [{ what: "events in flight", value: 2, bound: 6 }],
  outputs: [{ where: "relay-1's log", text: "all is well" }],
  canaries: ["hunter2/%é"],
};

export const bounds = { latencyMs: 1_000, recoveryMs: 2_000, lingerMs: 1_000 };

export function verdictOf(
  invariant: Invariant,
  history: readonly Entry[],
  reads: Partial<Reads> = {},
  more: Partial<TimeBounds> = {},
): Verdict {
  return check(history, { ...wellRead, ...reads }, { ...bounds, ...more }).verdicts.find((verdict) => verdict.invariant === invariant)!;
}

/** Without the order of keys in an object, and without what a broken one has beside its example. */
export function short(verdict: Verdict): string {
  switch (verdict.verdict) {
    case "holds":
      return ["holds", ...[...verdict.pardons].map(([why, times]) => `${times} × ${why}`)].join(", ");
    case "broken":
      return `broken ${verdict.times} times: ${verdict.example.text} [${verdict.example.ids.join(" ")}]`;
    case "unknown":
      return `unknown: ${verdict.reason}`;
  }
}
