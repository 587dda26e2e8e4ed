import { fork, picker } from "../simulation/plan.ts";
import { illnesses, type Illness } from "./broker.ts";

/** What happens to the relays and their servers. */
export const faultNames = [
  /** One drains; then another starts. Or the other starts first. */
  "switch",
  "roll",
  /** One more, or one less. */
  "join",
  "leave",
  "kill",
  /** Stopped for longer than its lease, while another runs; then it wakes up. */
  "freeze",
  /** The database ends at once, and comes back. */
  "crash",
  "walsender",
  "slot",
  /** A topic is not well for some seconds. */
  "outage",
  /** The broker breaks all connections. */
  "cut",
] as const;
export type FaultName = (typeof faultNames)[number];

/** None of these may cost a copy. */
export const gentle: readonly FaultName[] = ["switch", "roll", "join", "leave", "outage"];
const gentleIllnesses: readonly Illness[] = ["refusing", "deaf", "slow"];

export interface Step {
  readonly name: FaultName;
  /** Seconds since the load began. */
  readonly at: number;
  /** The mode of the relay that comes. */
  readonly mode: string;
  /** From 0 to 1: how long, or which one. */
  readonly size: number;
  readonly illness: Illness;
}

export interface Segment {
  readonly seed: number;
  readonly nth: number;
  readonly seconds: number;
  /** Only what may cost no copy happens. */
  readonly isQuiet: boolean;
  readonly steps: readonly Step[];
  /** How long the broker takes to answer. So relays have something in hand when they die. */
  readonly answerMs: number;
  /** The load, as a share of what was asked for. */
  readonly pace: number;
}

export interface Choice {
  readonly modes: readonly string[];
  readonly faults: readonly FaultName[];
  readonly seconds: number;
}

/** Each kind's share in what is drawn. */
const weights: Readonly<Record<FaultName, number>> = {
  ...{ switch: 4, roll: 2, join: 1, leave: 1, kill: 3, freeze: 2, crash: 1, walsender: 1, slot: 1, outage: 2, cut: 1 },
};
/** Between two steps. */
const [leastGap, mostGap] = [0.5, 4];

/** What a seed chooses for a segment. Every third one is quiet. */
export function segmentOf(seed: number, nth: number, { modes, faults, seconds }: Choice): Segment {
  const random = fork(seed, `segment ${nth}`);
  const pick = picker(random);
  const [answerMs, pace] = [pick([0, 5, 20, 60]), pick([0.3, 1, 1, 3])];
  const isQuiet = nth % 3 === 0 || faults.every((name) => gentle.includes(name));
  const among = faults.filter((name) => !isQuiet || gentle.includes(name)).flatMap((name) => Array<FaultName>(weights[name]).fill(name));
  const steps: Step[] = [];
  for (let at = 1; among.length > 0;) {
    at += leastGap + random.next() * (mostGap - leastGap);
    if (at >= seconds) break;
    steps.push({ name: pick(among), at, mode: pick(modes), size: random.next(), illness: pick(isQuiet ? gentleIllnesses : illnesses) });
  }
  return { seed, nth, seconds, isQuiet, steps, answerMs, pace };
}
