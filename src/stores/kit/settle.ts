import type { Claim, Outcome } from "../../contracts/outbox-store.ts";
import { told, type Reason } from "../../core/reason.ts";
import type { HeldBy } from "./claim.ts";

/**
 * Which outcomes may be written: those of lanes that the relay still owns under the claim's epoch, as far as their events are in the
 * window. `lost` are the other lanes.
 */
export function fenced(
  outcomes: readonly Outcome[],
  owned: ReadonlyMap<number, bigint>,
  isOpen: (claim: Claim) => boolean,
): { readonly mine: readonly Outcome[]; readonly lost: readonly number[] } {
  const isOwned = ({ lane, epoch }: Claim): boolean => owned.get(lane) === epoch;
  const lost = new Set(outcomes.flatMap(({ claim }) => (isOwned(claim) ? [] : [claim.lane])));
  return { mine: outcomes.filter(({ claim }) => isOwned(claim) && isOpen(claim)), lost: [...lost].sort((a, b) => a - b) };
}

export const seqOf = ({ claim }: Outcome): bigint => claim.envelope.seq;

/** A stored event whose outcome is not `published`. */
interface Unsettled {
  /** Names its aggregate. */
  readonly aggregate: string;
  readonly held: HeldBy | null;
  /** False where the aggregate's names fit into no index: it cannot be held, and the event fails alone. @default true */
  readonly holdable?: boolean;
}

interface SettlePlan {
  readonly failed: readonly Failed[];
  /** One for each aggregate. */
  readonly holds: readonly NewHold[];
  /** Records that events wait under from now on. */
  readonly waiting: readonly { readonly destination: string; readonly lane: number; readonly why: string }[];
  /** The events that wait for them. */
  readonly blocked: readonly bigint[];
}

export interface Failed extends Required<Reason> {
  readonly seq: bigint;
  /** Null for a dead event. */
  readonly afterMs: number | null;
}

export interface NewHold {
  /** The claim of its cause. */
  readonly claim: Claim;
  readonly destination: string | null;
  readonly why: string;
  /** Its followers go on at once. */
  readonly free: boolean;
}

/** Decides in the order of the outcomes. `storedOf` answers undefined for an event that is deleted or final. */
export function planSettle(outcomes: readonly Outcome[], storedOf: (claim: Claim) => Unsettled | undefined): SettlePlan {
  const holds = new Map<string, NewHold>();
  const waiting = new Map<string, SettlePlan["waiting"][number]>();
  const [failed, blocked]: [Failed[], bigint[]] = [[], []];
  for (const outcome of outcomes) {
    const { claim } = outcome;
    const stored = outcome.as === "published" ? undefined : storedOf(claim);
    if (stored === undefined) continue;
    const { aggregate, holdable = true } = stored;
    const seq = seqOf(outcome);
    if (outcome.as === "returned") {
      if (outcome.destination === undefined || !holdable || waitsForAnother(seq, holds.get(aggregate), stored.held)) continue;
      const { topic, why, under = topic } = outcome.destination;
      holds.set(aggregate, { claim, destination: topic, why, free: false });
      waiting.set(`${claim.lane} ${under}`, { destination: under, lane: claim.lane, why });
      blocked.push(seq);
    } else if (outcome.as !== "published") {
      const { code = "", error, detail = "" } = outcome;
      failed.push({ seq, code, error, detail, afterMs: outcome.as === "parked" ? null : outcome.afterMs });
      if (holdable)
        holds.set(aggregate, { claim, destination: null, why: told(outcome), free: outcome.as === "parked" && outcome.release });
    }
  }
  return { failed, holds: [...holds.values()], waiting: [...waiting.values()], blocked };
}

/** Whether the event's aggregate is already held for an earlier event. */
function waitsForAnother(seq: bigint, planned: NewHold | undefined, held: HeldBy | null): boolean {
  if (planned !== undefined) return !planned.free && planned.claim.envelope.seq !== seq;
  return held !== null && held.freeTo === null && held.cause !== seq;
}
