import { codes, isPassing, KafkaRefusal, wrongAnswer } from "../codes.ts";
import { within } from "../../../core/time.ts";
import type { Wake } from "../../../core/wake.ts";
import type { PartitionShare } from "./assignment.ts";
import { forgotten, type Commits } from "./commits.ts";
import { startFetching, type Fetching } from "./fetching.ts";
import type { Link, Topic } from "../link.ts";
import type { GroupMember } from "./member.ts";
import { createOwned, type Owned } from "./owned.ts";

/** What a session may do in each of its phases. They follow each other, round after round. */
export const phases = {
  /** The coordinator would take a commit under the new generation, in which the partition may be another member's. */
  joining: { delivers: false, commits: false },
  reading: { delivers: true, commits: true },
  /** The members rejoin. The coordinator gives our partitions to another member only after it has heard us or stopped waiting for us. */
  handingOver: { delivers: false, commits: true },
} as const;

export interface SessionState {
  phase: keyof typeof phases;
  /** Nothing more is delivered, in any phase. */
  retiring: boolean;
  failure: Error | null;
  owned: readonly Owned[];
  fetching: Fetching | null;
  /** When the coordinator was last asked something that it answered. */
  heard: number;
  /** Deliveries that are neither acknowledged nor set aside. */
  inHand: number;
}

export interface RoundsOptions {
  readonly link: Link;
  readonly consumer: string;
  /** All of them are there. */
  readonly topics: ReadonlyMap<string, Topic>;
  readonly sessionMs: number;
  /** How long the other members wait for us in a rebalance. */
  readonly rebalanceMs: number;
  readonly flushMs: number;
  /** How many bytes may be fetched at once. */
  readonly bytes: number;
  /** The largest batch: one comes whole, whatever `bytes` say. */
  readonly batchBytes: number;
  /** How many bytes more may be taken; those that are fetched and not taken count too. */
  readonly bytesLeft: () => number;
  readonly missed: (topic: string, messages: number) => void;
  readonly member: GroupMember;
  readonly commits: Commits<Owned>;
  readonly wake: Wake;
  readonly fail: (error: unknown) => void;
}

/** How long the other members wait, in a rebalance, for us to finish the deliveries in hand. */
export const handoverMs = 3_000;
const heartbeatMs = 1_000;
/** How often we look whether topics have got more partitions. */
const beatsPerLook = 30;

/** Joins, reads and hands over, until the signal aborts or the session fails. */
export async function runRounds(state: SessionState, options: RoundsOptions, signal: AbortSignal): Promise<void> {
  const { link, consumer, topics, sessionMs, rebalanceMs, flushMs, member, commits, wake, fail } = options;
  const { clock } = link;
  const beatMs = Math.min(heartbeatMs, sessionMs / 4);
  const names = [...topics.keys()];
  let counts: ReadonlyMap<string, number> = new Map([...topics].map(([name, { partitions }]) => [name, partitions.length]));

  const lookAtCounts = async (): Promise<ReadonlyMap<string, number>> => {
    const { topics: now } = await link.look(names, signal);
    return new Map([...now].flatMap(([name, topic]) => (topic instanceof Error ? [] : [[name, topic.partitions.length]])));
  };
  const inTouch = (): boolean => clock.monotonic() - state.heard <= (state.phase === "reading" ? sessionMs : rebalanceMs);

  const reconcile = async (assignment: PartitionShare, before: number): Promise<void> => {
    for (const [topic, indexes] of assignment)
      if (!topics.has(topic) || indexes.some((index) => index < 0)) throw wrongAnswer(`${link.shown}, group ${consumer},`, "syncGroup");
    const wanted = [...assignment].flatMap(([topic, indexes]) => indexes.map((index) => ({ topic, index })));
    // A partition that we also had in the generation before was no other member's in between.
    const stay = member.generation === before + 1 ? state.owned.filter(({ ended }) => !ended.aborted) : [];
    const kept = wanted.map(({ topic, index }) => stay.find((one) => one.topic === topic && one.index === index));
    for (const one of state.owned) if (!kept.includes(one)) one.lose();
    const fresh = wanted.filter((_, i) => kept[i] === undefined);
    const starts = fresh.length === 0 ? [] : await member.committed(fresh, signal);
    state.owned = [...kept.filter((one) => one !== undefined), ...fresh.map((spot, i) => createOwned(spot, starts[i] ?? null, inTouch))];
  };

  const joining = async (): Promise<void> => {
    const before = member.generation;
    await reconcile(await member.join(signal), before);
    counts = new Map([...counts, ...(await lookAtCounts())]);
    if (signal.aborted) return;
    state.heard = clock.monotonic();
    state.phase = "reading";
  };

  /** Commits where a partition begins: until then its group looks new, and a new group has missed nothing. */
  const begun = (partition: Owned): void => {
    partition.ledger.open(partition.from - 1n)();
    commits.note(partition);
  };

  const reading = async (): Promise<void> => {
    void commits.flush();
    const fetching = startFetching<Owned>({
      ...{ link, topics, readings: state.owned, patienceMs: sessionMs, begun, arrived: () => wake.notify(), failed: fail },
      ...{ bytes: options.bytes, batchBytes: options.batchBytes, bytesLeft: options.bytesLeft, missed: options.missed },
    });
    state.fetching = fetching;
    wake.notify();
    const isMember = await heartbeats();
    fetching.stop();
    // A failed session sends no more heartbeats: other members get its partitions after `sessionMs`, without the extra time of a handover.
    if (isMember && state.failure !== null) return;
    state.phase = isMember ? "handingOver" : "joining";
    if (!isMember) for (const partition of state.owned) partition.lose();
  };

  /** Sends heartbeats until we have to rejoin, or the session ends. False when the coordinator has forgotten us. */
  const heartbeats = async (): Promise<boolean> => {
    for (let beats = 1; state.failure === null; beats++) {
      await clock.sleep(beatMs, signal);
      if (signal.aborted) break;
      try {
        if (beats % beatsPerLook === 0 && [...(await lookAtCounts())].some(([name, count]) => count !== counts.get(name))) break;
        const asked = clock.monotonic();
        const code = await member.heartbeat();
        if (forgotten.includes(code)) return false;
        if (code !== codes.NONE && code !== codes.REBALANCE_IN_PROGRESS) throw new KafkaRefusal(code, `${link.shown}, group ${consumer}`);
        state.heard = asked;
        if (code === codes.REBALANCE_IN_PROGRESS) break;
      } catch (error) {
        if (error instanceof KafkaRefusal && !isPassing(error.kafkaCode)) throw error;
        // By now other members may own our partitions.
        if (clock.monotonic() - state.heard > sessionMs) throw error;
      }
    }
    return true;
  };

  /** Waits a while for the deliveries in hand, and commits. */
  const handingOver = async (): Promise<void> => {
    const until = clock.monotonic() + handoverMs;
    while (state.inHand > 0 && clock.monotonic() < until && !signal.aborted) {
      const hinted = await wake.wait(clock, Math.min(beatMs, until - clock.monotonic()), signal);
      if (!hinted) await member.heartbeat().catch(() => undefined);
    }
    await within(clock, flushMs, commits.flush());
    state.phase = "joining";
  };

  const steps = { joining, reading, handingOver };
  while (!signal.aborted && state.failure === null) await steps[state.phase]();
}
