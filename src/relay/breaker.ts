import type { Clock } from "../core/clock.ts";
import type { Observe } from "../core/path-events.ts";
import type { Random } from "../core/random.ts";
import type { Wake } from "../core/wake.ts";

export interface BreakerOptions {
  readonly clock: Clock;
  readonly random: Random;
  readonly observe: Observe;
  /** First wait before a probe; doubled up to the last. */
  readonly firstProbeMs: number;
  readonly lastProbeMs: number;
  /** Told whenever there may be something to do. */
  readonly changed: Pick<Wake, "notify">;
}

/**
 * One state per topic that is not known to be well:
 *
 *   (none)    → open       the destination failed
 *   open      → trial      its metadata is well again, and one waiting aggregate was let go
 *   trial     → releasing  that one was stored
 *   trial     → open       that one was not, or nothing came of it in time
 *   releasing → (none)     everything that waited has been let go
 *
 * An event that ends unknown in a trial, where it is alone on its topic, gets a strike when another event has been
 * stored there since its last strike. At the third it is the event that is to blame, not the destination.
 */
export interface Breaker {
  /** May an event for this topic be sent now? In a trial, one may. */
  admit(topic: string, id: string): boolean;
  why(topic: string): string;
  stored(topic: string, id: string): void;
  /** The destination failed. True when it is this event's third strike: judge the event instead. */
  failed(topic: string, id: string, error: Error, unknown: boolean): boolean;
  /** The probe failed: the next one comes later. */
  probeFailed(topic: string, error: Error): void;
  /** Events of this topic wait in the store, and this relay has not seen why. */
  adopt(topic: string): void;
  /** Topics to probe now. */
  due(): readonly string[];
  /** Topics whose waiting events are to be let go now. */
  releasing(): readonly string[];
  /** The probe was well: one event may go. */
  tryOne(topic: string): void;
  /** Nothing waits for this topic any more. */
  closed(topic: string): void;
  /** Milliseconds until something is due; Infinity when every topic is well. */
  dueInMs(): number;
  /** Nothing is due, under trial or being released. */
  quiet(): boolean;
}

interface Topic {
  state: "open" | "trial" | "releasing";
  why: string;
  failures: number;
  probeAt: number;
  trial: string | null;
}

const strikesToBlame = 3;
const trialMs = 30_000;

export function createBreaker(options: BreakerOptions): Breaker {
  const { clock, observe } = options;
  const topics = new Map<string, Topic>();
  const successes = new Map<string, number>();
  const strikes = new Map<string, { count: number; since: number }>();

  const open = (name: string, why: string): void => {
    const failures = (topics.get(name)?.failures ?? 0) + 1;
    const wait = Math.min(options.firstProbeMs * 2 ** (failures - 1), options.lastProbeMs) * (0.75 + options.random.next() / 2);
    if (topics.get(name)?.state !== "open") observe({ type: "destination.opened", topic: name, error: why, probeInMs: Math.round(wait) });
    topics.set(name, { state: "open", why, failures, probeAt: clock.monotonic() + wait, trial: null });
    options.changed.notify();
  };

  const strike = (name: string, id: string): boolean => {
    const since = successes.get(name) ?? 0;
    const before = strikes.get(id);
    if (before === undefined) strikes.set(id, { count: 1, since });
    else if (since > before.since) strikes.set(id, { count: before.count + 1, since });
    if ((strikes.get(id)?.count ?? 0) < strikesToBlame) return false;
    strikes.delete(id);
    return true;
  };

  return {
    admit(name, id) {
      const topic = topics.get(name);
      if (topic === undefined || topic.state === "releasing") return true;
      if (topic.state === "open" || topic.trial !== null) return false;
      topic.trial = id;
      return true;
    },
    why: (name) => topics.get(name)?.why ?? "",
    stored(name, id) {
      strikes.delete(id);
      const topic = topics.get(name);
      if (topic === undefined) return;
      successes.set(name, (successes.get(name) ?? 0) + 1);
      if (topic.state !== "trial") return;
      topic.state = "releasing";
      options.changed.notify();
    },
    failed(name, id, error, unknown) {
      const topic = topics.get(name);
      const alone = topic?.state === "trial" && topic.trial === id;
      if (alone && unknown && strike(name, id)) {
        topic.state = "open"; // the destination is not to blame: probe it with another event at once
        topic.probeAt = clock.monotonic();
        options.changed.notify();
        return true;
      }
      // A window's many failures are one: only the first of them moves the next probe.
      if (topic?.state !== "open") open(name, error.message);
      return false;
    },
    probeFailed: (name, error) => open(name, error.message),
    adopt(name) {
      if (topics.has(name)) return;
      topics.set(name, { state: "open", why: "events were found waiting for it", failures: 0, probeAt: clock.monotonic(), trial: null });
      options.changed.notify();
    },
    due() {
      const now = clock.monotonic();
      for (const topic of topics.values()) if (topic.state === "trial" && topic.probeAt + trialMs <= now) topic.state = "open";
      return [...topics].filter(([, topic]) => topic.state === "open" && topic.probeAt <= now).map(([name]) => name);
    },
    releasing: () => [...topics].filter(([, { state }]) => state === "releasing").map(([name]) => name),
    tryOne(name) {
      const topic = topics.get(name);
      if (topic?.state === "open") topics.set(name, { ...topic, state: "trial", trial: null, probeAt: clock.monotonic() });
    },
    closed(name) {
      if (topics.delete(name)) observe({ type: "destination.closed", topic: name });
    },
    dueInMs() {
      const now = clock.monotonic();
      const waits = [...topics.values()].map(({ state, probeAt }) =>
        state === "releasing" ? 0 : probeAt + (state === "trial" ? trialMs : 0) - now,
      );
      return Math.max(0, Math.min(...waits));
    },
    quiet() {
      const now = clock.monotonic();
      return [...topics.values()].every(({ state, probeAt }) => state === "open" && probeAt > now);
    },
  };
}
