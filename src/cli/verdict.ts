import type { ConsumerState } from "../contracts/consumers.ts";
import type { LetterGroup } from "../contracts/letters.ts";
import type { Status } from "../contracts/operator.ts";
import type { State } from "../core/event.ts";
import { inWords } from "../core/in-words.ts";
import { maxTold } from "../core/reason.ts";
import { count, shorten } from "../core/text.ts";
import { lookMs, type Knowledge } from "./known.ts";

/** What an operator should know first, in words. */
export interface StatusVerdict {
  readonly about: "relays" | "lag" | "consumer" | "topic" | "blocked" | "dead" | "letters" | "retrying" | "well";
  /** Fails `status --check`: an operator has to look. */
  readonly failing: boolean;
  readonly text: string;
}

/** What the inboxes in this database hold. */
interface Inboxes {
  readonly consumers: readonly ConsumerState[];
  readonly groups: readonly LetterGroup[];
  readonly known: Knowledge;
}

export interface VerdictLimits {
  readonly maxAgeMs: number;
  /** How many messages a consumer that runs may be behind. */
  readonly maxLag: number;
}

/** Failing first. Events younger than `maxAgeMs` may be on their way and fail nothing. Dead events and letters never move by themselves. */
export function verdictsOf(status: Status, inbox: Inboxes, now: number, limits: VerdictLimits): readonly StatusVerdict[] {
  const { maxAgeMs } = limits;
  const found = [
    ...[...lag(status, maxAgeMs), ...topics(status, now, maxAgeMs), ...blocked(status, maxAgeMs)],
    ...behind(inbox.known, now, limits),
    ...[...dead(status), ...parked(inbox, now), ...retrying(inbox, now, maxAgeMs)],
  ];
  if (found.length > 0) return found.sort((a, b) => Number(b.failing) - Number(a.failing));
  const relays = count(liveOf(status), "relay runs", "relays run");
  const waits = waiting(status) === 0 ? "nothing waits" : `${waitingInWords(status)}, none too long`;
  return [{ about: "well", failing: false, text: `all is well: ${relays}, ${waits}` }];
}

const liveOf = ({ relays }: Status): number => relays.filter(({ live }) => live).length;
const unpublished = ["PENDING", "PUBLISHING", "FAILED"] as const satisfies readonly State[];
const waiting = ({ states }: Status): number => unpublished.reduce((sum, state) => sum + states[state], 0);
const waitingInWords = (status: Status): string =>
  `${status.estimated.length > 0 ? "about " : ""}${count(waiting(status), "event waits", "events wait")}`;

function lag(status: Status, maxAgeMs: number): StatusVerdict[] {
  const { claimableMs } = status.oldest;
  const late = claimableMs !== null && claimableMs > maxAgeMs;
  const oldest = claimableMs === null ? "none of them is due" : `the oldest for ${inWords(claimableMs)}`;
  if (liveOf(status) === 0) {
    const text =
      waiting(status) === 0 ? "no relay is running, and nothing waits" : `no relay is running and ${waitingInWords(status)}, ${oldest}`;
    return [{ about: "relays", failing: late, text }];
  }
  return late ? [{ about: "lag", failing: true, text: `relays are running, but ${waitingInWords(status)}, ${oldest}` }] : [];
}

function topics({ breakers }: Status, now: number, maxAgeMs: number): StatusVerdict[] {
  return breakers.map(({ destination, why, since, aggregates }) => {
    const ageMs = Math.max(0, now - since.getTime());
    const text = `${destination} has taken no events for ${inWords(ageMs)}, and ${count(aggregates, "aggregate waits", "aggregates wait")} for it: ${shorten(why, maxTold)}`;
    return { about: "topic", failing: ageMs > maxAgeMs, text };
  });
}

/** Aggregates that wait for one of their own events. Those that wait for a topic are reported with the topic. */
function blocked({ holds, breakers, oldest }: Status, maxAgeMs: number): StatusVerdict[] {
  const forTopics = breakers.reduce((sum, { aggregates }) => sum + aggregates, 0);
  const held = holds.list.filter((hold) => !hold.releasing && hold.destination === null);
  const aggregates = Math.max(held.length, holds.aggregates - forTopics - holds.list.filter(({ releasing }) => releasing).length);
  const [first] = held;
  if (aggregates <= 0) return [];
  const failing = oldest.blockedMs !== null && oldest.blockedMs > maxAgeMs;
  // Only the oldest holds are listed, and all of them may wait for topics.
  if (first === undefined) return [{ about: "blocked", failing, text: `${count(aggregates, "aggregate is", "aggregates are")} blocked` }];
  const cause = `event ${first.causeId ?? "unknown"}: ${shorten(first.why, maxTold)}`;
  const name = `${first.aggregateType} ${first.aggregateId}`;
  const text =
    aggregates === 1
      ? `one aggregate (${name}) is blocked by ${cause}`
      : `${aggregates} aggregates are blocked; the first is ${name}, by ${cause}`;
  return [{ about: "blocked", failing, text }];
}

function dead({ states: { DEAD }, oldest: { deadMs }, dead: groups }: Status): StatusVerdict[] {
  if (DEAD === 0) return [];
  const age = deadMs === null ? "" : `, the oldest for ${inWords(deadMs)}`;
  const most =
    groups[0] === undefined
      ? ""
      : `: ${shorten(groups[0].error, maxTold)}${groups.length > 1 ? `, and ${count(groups.length - 1, "other error")}` : ""}`;
  return [{ about: "dead", failing: true, text: `${count(DEAD, "event is dead", "events are dead")}${age}${most}` }];
}

/** One for each consumer. Letters that were redriven are on their way. */
function parked({ consumers, groups }: Inboxes, now: number): StatusVerdict[] {
  return consumers.flatMap(({ consumer, letters }) => {
    const waits = letters.filter((topic) => topic.letters > topic.redriven);
    if (waits.length === 0) return [];
    const sum = waits.reduce((all, topic) => all + topic.letters - topic.redriven, 0);
    const oldest = Math.max(0, now - Math.min(...waits.map((topic) => topic.oldest.getTime())));
    // The causes are those of the largest groups.
    const [most, ...others] = groups.filter((group) => group.consumer === consumer && group.letters > group.redriven);
    const why = most === undefined ? "" : `: ${shorten(most.error, maxTold)}`;
    const more = others.length === 0 ? "" : `, and ${count(others.length, "other cause")}`;
    return [
      { about: "letters", failing: true, text: `${consumer} has ${count(sum, "letter")}, the oldest for ${inWords(oldest)}${why}${more}` },
    ];
  });
}

/** Old attempts are left out: they may belong to events that the broker has dropped. */
function retrying({ consumers }: Inboxes, now: number, maxAgeMs: number): StatusVerdict[] {
  return consumers.flatMap(({ consumer, retrying: waits }) => {
    if (waits === null || now - waits.failedAt.getTime() > maxAgeMs) return [];
    const text = `${consumer} tries ${count(waits.events, "failed event")} again, after ${count(waits.attempts, "attempt")} at most`;
    return [{ about: "retrying", failing: false, text }];
  });
}

/** A consumer that is gone or behind. One that was stopped a moment ago, or runs and is a little behind, fails nothing. */
function behind({ consumers, asked, named }: Knowledge, now: number, limits: VerdictLimits): readonly StatusVerdict[] {
  return consumers.flatMap((each) => {
    const { consumer, topic, running, seenAt, messages, error } = each;
    const goneMs = seenAt === null ? 0 : Math.max(0, now - seenAt.getTime());
    const gone = `no subscriber of it has run for ${inWords(goneMs)}`;
    const late = running === false && goneMs > limits.maxAgeMs;
    const say = (failing: boolean, text: string): readonly StatusVerdict[] => [{ about: "consumer", failing, text }];
    if (error !== null) {
      const also = running === false ? `, and ${gone}` : "";
      return say(true, `how far ${consumer} is behind on ${topic} is not known${also}: ${shorten(error, maxTold)}`);
    }
    if (messages !== null && messages > 0) {
      const lag = `${consumer} is ${count(messages, "message")} behind on ${topic}`;
      if (running === false) return say(late, `${lag}, and ${gone}`);
      if (running === null) return say(true, `${lag}, and got no further in ${inWords(lookMs)}`);
      return say(messages > limits.maxLag, lag);
    }
    if (running === false) {
      if (messages === 0) return say(false, `nothing waits for ${consumer} on ${topic}, but ${gone}`);
      if (asked) return say(false, `${consumer} has no place in ${topic}, or the broker cannot tell, and ${gone}`);
      return say(late, `${consumer} reads ${topic}, but ${gone}: with --broker URL, status says how far it is behind`);
    }
    if (running === null && messages === null)
      // An operator who names a consumer expects it to be there.
      return say(
        asked && consumer === named?.consumer && topic === named.topic,
        asked
          ? `${consumer} has no place in ${topic} yet, or the broker cannot tell how far behind it is`
          : `how far ${consumer} is behind on ${topic} is not known: give --broker URL`,
      );
    return [];
  });
}
