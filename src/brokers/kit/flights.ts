import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { systemClock, type Clock } from "../../core/clock.ts";
import { asError } from "../../core/errors.ts";
import { aggregateKey, type Envelope } from "../../core/event.ts";
import { skipped, stored } from "./results.ts";

/** The most that is sent before answers are awaited: the client keeps it in memory, and so does a server that cannot write it yet. */
const most = { messages: 2_048, bytes: 2 * 1024 * 1024 };

/** Once a publish has taken this long, no aggregate's next message is sent: one deadline covers all of them. */
const longMs = 1_000;

/**
 * Sends flight after flight. Each has the next message of every aggregate whose previous message is stored. A broker goes on past a
 * message that it refused, so two of one aggregate in one flight could be reordered. One message is always sent, whatever its size: the
 * broker decides. Once the publish is called off, no flight begins after the first one. Once it has taken long, no aggregate's next message
 * is sent: a broker that has become slow is given them one by one.
 */
export async function inFlights(
  messages: readonly Outgoing[],
  signal: AbortSignal,
  fly: (flight: readonly Outgoing[]) => Promise<readonly PublishResult[]>,
  clock: Pick<Clock, "monotonic"> = systemClock,
): Promise<readonly PublishResult[]> {
  const until = clock.monotonic() + longMs;
  const results = messages.map(() => skipped);
  const { firsts, nexts } = inLine(messages);
  let ready = firsts;
  while (ready.length > 0) {
    const { places, later } = fill(ready, messages);
    const flown = await fly(places.map((at) => messages[at]!));
    const inTime = nexts !== null && clock.monotonic() < until;
    places.forEach((at, i) => {
      results[at] = flown[i]!;
      const next = inTime ? nexts.get(at) : undefined;
      if (next !== undefined && flown[i] === stored) later.push(next);
    });
    ready = signal.aborted ? [] : later;
  }
  return results;
}

function fill(ready: readonly number[], messages: readonly Outgoing[]): { readonly places: number[]; readonly later: number[] } {
  const places: number[] = [];
  const later: number[] = [];
  let bytes = 0;
  for (const at of ready) {
    const weight = weightOf(messages[at]!.envelope);
    const fits = places.length === 0 || (bytes + weight <= most.bytes && places.length < most.messages);
    if (fits) bytes += weight;
    (fits ? places : later).push(at);
  }
  return { places, later };
}

function weightOf({ data, headers }: Envelope): number {
  let weight = data.byteLength;
  for (const name of Object.keys(headers)) weight += name.length + headers[name]!.length;
  return weight;
}

interface Line {
  /** The places of each aggregate's first message. */
  readonly firsts: readonly number[];
  /** By place, the place of its aggregate's next message; null where each is alone of its aggregate, as a relay mostly sends them. */
  readonly nexts: ReadonlyMap<number, number> | null;
}

function inLine(messages: readonly Outgoing[]): Line {
  const ids = new Set<string>();
  for (const { envelope } of messages) ids.add(envelope.aggregateId);
  if (ids.size === messages.length) return { firsts: messages.map((_, at) => at), nexts: null };
  const lasts = new Map<string, number>();
  const firsts: number[] = [];
  const nexts = new Map<number, number>();
  messages.forEach(({ envelope }, at) => {
    const aggregate = aggregateKey(envelope);
    const last = lasts.get(aggregate);
    if (last === undefined) firsts.push(at);
    else nexts.set(last, at);
    lasts.set(aggregate, at);
  });
  return { firsts, nexts };
}

/** The messages of a flight that go to one topic, with their places. */
export interface TopicPart {
  readonly topic: string;
  readonly places: number[];
  readonly messages: Outgoing[];
}

/** `check` throws for a topic that the broker cannot have; `unfit` is called for each message of such a topic. */
export function byTopic(
  flight: readonly Outgoing[],
  check: (topic: string) => void,
  unfit: (at: number, error: Error) => void,
): readonly TopicPart[] {
  const parts = new Map<string, TopicPart | Error>();
  flight.forEach((message, at) => {
    const { topic } = message;
    let part = parts.get(topic);
    if (part === undefined) parts.set(topic, (part = partOf(topic, check)));
    if (part instanceof Error) return unfit(at, part);
    part.places.push(at);
    part.messages.push(message);
  });
  return [...parts.values()].filter((part): part is TopicPart => !(part instanceof Error));
}

function partOf(topic: string, check: (topic: string) => void): TopicPart | Error {
  try {
    check(topic);
    return { topic, places: [], messages: [] };
  } catch (error) {
    return asError(error);
  }
}
