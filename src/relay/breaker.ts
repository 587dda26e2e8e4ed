import type { Wake } from "../core/wake.ts";
import { otherTopics } from "../core/other-topics.ts";
import { createAgenda, type AgendaEntry } from "./agenda.ts";
import type { Crowd } from "./crowd.ts";
import type { RelayParts } from "./parts.ts";

interface BreakerOptions extends Pick<RelayParts, "clock" | "random" | "observe" | "probeMs" | "topics" | "topicRecords"> {
  readonly crowd: Pick<Crowd, "join" | "adopt">;
  /** Notified whenever there may be something to do. */
  readonly changed: Pick<Wake, "notify">;
}

/**
 * One state per topic that is not known to be healthy:
 *
 *   (none)    → open       the destination failed
 *   (none)    → releasing  events were found waiting for it, and this relay has not seen why: they are routed again
 *   open      → trial      the probe succeeded, and one waiting aggregate is released
 *   trial     → releasing  the destination answered that event
 *   trial     → open       it did not, or the trial timed out
 *   releasing → (none)     everything that waited has been released
 *
 * Only a topic that is open or under trial keeps new events back. An event that ends unknown in a trial, where it is alone on its topic,
 * gets a strike when another event has been stored there since its last strike. At the third strike the event is to blame, not the
 * destination.
 *
 * A writer may invent any number of topics, so their records are bounded. What fails beyond the bound waits under one record for all such
 * topics, and is sent when it is new: see `crowd.ts`. A topic that this relay knows to exist does not compete with invented ones.
 */
export interface Breaker {
  /** Would `admit` say yes now? Takes no place in a trial. */
  admits(topic: string): boolean;
  /** May an event for this topic be sent now? In a trial, one may. */
  admit(topic: string, id: string): boolean;
  why(topic: string): string;
  /** The record under which events wait for this topic. */
  under(topic: string): string;
  /** The destination stored the event, or refused it for what it is. */
  answered(topic: string, id: string): void;
  /** The event was admitted and then not sent. */
  unsent(topic: string, id: string): void;
  /** The destination failed. True when it is this event's third strike: judge the event instead. */
  failed(topic: string, id: string, error: Error, unknown: boolean): boolean;
  /** Events wait in the store under the record of this name. */
  adopt(record: string): void;
  has(topic: string): boolean;
  /** Is the topic on the relay's list, or has it taken an event? */
  isFamiliar(topic: string): boolean;
  /** The probe of a topic without a record succeeded: it is under trial. Resolves when that is over: has all that waited been released? */
  invite(topic: string): Promise<boolean>;
  /** The work for the topic that has been due for longest and is not in work; null when nothing is due. Call `done` when it is over. */
  next(): BreakerWork | null;
  done(topic: string): void;
  probeFailed(topic: string, error: Error): void;
  /** The probe succeeded. True when one waiting aggregate is to be released on trial. */
  probed(topic: string): boolean;
  /** Nothing waits for this topic any more. */
  released(topic: string): void;
  /** Milliseconds until something is due that is not in work; Infinity when nothing will be. */
  dueInMs(): number;
  /** Nothing is due, under trial or being released. */
  quiet(): boolean;
}

export interface BreakerWork {
  readonly topic: string;
  /** Check its metadata, or release what waits for it. */
  readonly as: "probe" | "release";
}

interface Topic {
  state: "open" | "trial" | "releasing";
  why: string;
  failures: number;
  probeAt: number;
  trial: string | null;
  /** Whether the opening was reported, so that the closing is reported too. */
  told: boolean;
  readonly as: Standing;
  /** Of a guest: notified when its visit is over. */
  readonly leave?: (welcome: boolean) => void;
}

/** Why a topic has a record: the relay's list names it; it has taken events of this relay; there was room; it is under trial for a while. */
type Standing = "named" | "familiar" | "stranger" | "guest";

/** How many topics and events are remembered: the first of them is forgotten for the next. */
const remembered = 1_000;

const strikesToBlame = 3;
/** A trial whose event never came up, because its lane went to another relay, ends after this. */
const trialMs = 5_000;

/** Sets the entry, and forgets the oldest one when there are too many. */
function keep<Value>(map: Map<string, Value>, key: string, value: Value): void {
  map.set(key, value);
  if (map.size > remembered) map.delete(map.keys().next().value!);
}

export function createBreaker(options: BreakerOptions): Breaker {
  const { clock, observe, changed, crowd } = options;
  const topics = new Map<string, Topic>();
  /** Topics that have taken events, with how often they did so while they had a record. */
  const successes = new Map<string, number>();
  const strikes = new Map<string, { count: number; since: number }>();

  /** An entry whose topic has moved on since is stale. */
  const agenda = createAgenda<{ readonly name: string; readonly topic: Topic }>();
  const inWork = new Set<string>();
  /** Topics that came up while they were in work. */
  const passedOver = new Set<string>();

  const plan = (name: string, topic: Topic): void => {
    const { state, probeAt } = topic;
    const at = state === "open" ? probeAt : state === "trial" ? probeAt + trialMs : clock.monotonic();
    agenda.add(at, { name, topic });
  };
  const first = (): AgendaEntry<{ readonly name: string; readonly topic: Topic }> | null => {
    for (let entry = agenda.first(); entry !== null; entry = agenda.first()) {
      const { name, topic } = entry.item;
      const stale = topics.get(name) !== topic;
      if (!stale && !inWork.has(name)) return entry;
      if (!stale) passedOver.add(name);
      agenda.drop();
    }
    return null;
  };

  const set = (name: string, topic: Topic): void => {
    topics.set(name, topic);
    plan(name, topic);
    changed.notify();
  };
  const remove = (name: string, topic: Topic, welcome: boolean): void => {
    topics.delete(name);
    topic.leave?.(welcome);
  };

  const most = { named: Infinity, familiar: 2 * options.topicRecords, stranger: options.topicRecords };
  const isNamed = (name: string): boolean => options.topics?.has(name) === true;
  const isFamiliar = (name: string): boolean => isNamed(name) || successes.has(name);
  /** What a topic's own record would be; null beyond the bound. */
  const standing = (name: string): Exclude<Standing, "guest"> | null => {
    const as = isNamed(name) ? "named" : isFamiliar(name) ? "familiar" : "stranger";
    const others = [...topics].filter(([other, topic]) => other !== name && topic.as === as);
    return others.length < most[as] ? as : null;
  };

  const open = (name: string, why: string): void => {
    const before = topics.get(name);
    const as = before === undefined || before.as === "guest" ? standing(name) : before.as;
    if (as === null) {
      if (before !== undefined) remove(name, before, false);
      return crowd.join(why);
    }
    before?.leave?.(false);
    const failures = (before?.failures ?? 0) + 1;
    const wait = Math.min(options.probeMs.first * 2 ** (failures - 1), options.probeMs.last) * (0.75 + options.random.next() / 2);
    if (before?.told !== true) observe({ type: "destination.opened", topic: name, error: why, probeInMs: Math.round(wait) });
    set(name, { state: "open", why, failures, probeAt: clock.monotonic() + wait, trial: null, told: true, as });
  };

  const strike = (name: string, id: string): boolean => {
    const since = successes.get(name) ?? 0;
    const before = strikes.get(id);
    if (before === undefined) keep(strikes, id, { count: 1, since });
    else if (since > before.since) strikes.set(id, { count: before.count + 1, since });
    if ((strikes.get(id)?.count ?? 0) < strikesToBlame) return false;
    strikes.delete(id);
    return true;
  };

  const onTrial = (name: string, id: string): Topic | null => {
    const topic = topics.get(name);
    return topic?.state === "trial" && topic.trial === id ? topic : null;
  };

  const admits = (name: string): boolean => {
    const topic = topics.get(name);
    return topic === undefined || topic.state === "releasing" || (topic.state === "trial" && topic.trial === null);
  };

  return {
    admits,
    admit(name, id) {
      if (!admits(name)) return false;
      const topic = topics.get(name);
      if (topic?.state === "trial") topic.trial = id;
      return true;
    },
    why: (name) => topics.get(name)?.why ?? "",
    under: (name) => ((topics.get(name)?.as ?? "guest") === "guest" ? otherTopics : name),
    answered(name, id) {
      if (strikes.size > 0) strikes.delete(id);
      const topic = topics.get(name);
      if (topic === undefined) {
        if (!successes.has(name)) keep(successes, name, 0);
        return;
      }
      keep(successes, name, (successes.get(name) ?? 0) + 1);
      if (onTrial(name, id) !== null) set(name, { ...topic, state: "releasing", trial: null });
    },
    unsent(name, id) {
      const topic = onTrial(name, id);
      if (topic !== null) topic.trial = null;
    },
    failed(name, id, error, unknown) {
      const topic = onTrial(name, id);
      if (topic !== null && unknown && strike(name, id)) {
        // The destination is not to blame: it is probed with another event at once.
        if (topic.as === "guest") remove(name, topic, false);
        else set(name, { ...topic, state: "open", trial: null, probeAt: clock.monotonic() });
        return true;
      }
      // The many failures of a window count as one: only the first of them moves the next probe.
      if (topics.get(name)?.state !== "open") open(name, error.message);
      return false;
    },
    adopt(name) {
      if (topics.has(name)) return;
      const as = name === otherTopics ? null : standing(name);
      if (as === null) return crowd.adopt();
      set(name, {
        state: "releasing",
        why: "events were found waiting for it",
        failures: 0,
        probeAt: clock.monotonic(),
        trial: null,
        told: false,
        as,
      });
    },
    has: (name) => topics.has(name),
    isFamiliar,
    invite: (name) =>
      new Promise((leave) => {
        if (topics.has(name)) return leave(false);
        const topic = { why: "it was probed", failures: 0, probeAt: clock.monotonic(), trial: null, told: false };
        set(name, { ...topic, state: "trial", as: "guest", leave });
      }),
    next() {
      for (;;) {
        const due = first();
        if (due === null || due.at > clock.monotonic()) return null;
        agenda.drop();
        const { name, topic } = due.item;
        if (topic.state === "trial" && topic.as === "guest") {
          remove(name, topic, false);
          continue;
        }
        if (topic.state === "trial") topic.state = "open";
        inWork.add(name);
        return { topic: name, as: topic.state === "open" ? "probe" : "release" };
      }
    },
    done(name) {
      inWork.delete(name);
      const topic = topics.get(name);
      // One step need not release all that waits.
      const again = passedOver.delete(name) || topic?.state === "releasing";
      if (topic !== undefined && again) plan(name, topic);
    },
    probeFailed: (name, error) => open(name, error.message),
    probed(name) {
      const topic = topics.get(name);
      if (topic?.state !== "open") return false;
      set(name, { ...topic, state: "trial", trial: null, probeAt: clock.monotonic() });
      return true;
    },
    released(name) {
      const topic = topics.get(name);
      // It may have failed again meanwhile, or be on trial with an event that came from elsewhere.
      if (topic === undefined || !(topic.state === "releasing" || (topic.state === "trial" && topic.trial === null))) return;
      remove(name, topic, true);
      if (topic.told) observe({ type: "destination.closed", topic: name });
    },
    dueInMs() {
      const entry = first();
      return entry === null ? Infinity : Math.max(0, entry.at - clock.monotonic());
    },
    quiet() {
      const now = clock.monotonic();
      return [...topics.values()].every(({ state, probeAt }) => state === "open" && probeAt > now);
    },
  };
}
