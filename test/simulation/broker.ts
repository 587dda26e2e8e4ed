import type { Outgoing, PublishResult } from "../../src/contracts/sink.ts";
import type { Clock } from "../../src/core/clock.ts";
import { toAttributes, type Attributes } from "../../src/core/cloudevents.ts";
import { WaybillError } from "../../src/core/errors.ts";
import { aggregateKey } from "../../src/core/event.ts";
import { checkSent, checkTopicText } from "../../src/core/headers.ts";
import type { BrokerProfile } from "./profiles.ts";
import type { Server } from "./server.ts";

interface Message {
  /** In its unit, from 1. */
  readonly offset: number;
  /** In its topic, from 1. */
  readonly position: number;
  readonly topic: string;
  readonly key: string;
  readonly attributes: Attributes;
  readonly headers: Readonly<Record<string, string>>;
  readonly data: Uint8Array;
}

/** What one reader at a time is given: a partition, a queue, or a whole topic. */
interface Unit {
  readonly name: string;
  readonly messages: Message[];
  readonly groups: Map<string, Group>;
}

/** Where a consumer stands in a unit. */
interface Group {
  /** Everything up to here is acknowledged. */
  settled: number;
  /** Acknowledged beyond it, where the broker keeps single acks. */
  readonly acked: Set<number>;
}

/** Where a reading stands in a unit. */
interface Cursor {
  readonly unit: Unit;
  next: number;
  /** Its own acks, where the broker keeps none but the first gap. */
  settled: number;
  readonly acked: Set<number>;
}

/** One reading. Once it is not open, nothing more is delivered by it. */
export interface Reading {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly units: Map<string, Cursor>;
  /** Those who wait for a message. */
  readonly waiting: Set<() => void>;
  /** Delivered again, out of their order. */
  readonly again: Message[];
  open: boolean;
}

/** What is wrong with the broker beyond its links. */
interface Moods {
  /** Topics that are missing, unroutable, forbidden. */
  readonly refused: Map<string, number>;
  /** How likely a message is nacked; how likely a batch is cut short, and its acks lost. */
  nack: number;
  cut: number;
  /** Events that are refused for what they are: for so many more times, or for good. */
  readonly poison: Map<string, number>;
  /** Nothing is refused for what it is any more. */
  forgiving: boolean;
}

interface BrokerHeard {
  /** It was stored, and the one who sent it will not hear of it: it was given up at that time. */
  unheard?(message: Outgoing, gaveUpAt: number): void;
  poisoned?(message: Outgoing): void;
}

/** The log that all profiles share, and who reads what. */
export function createBroker(clock: Clock, server: Server, profile: BrokerProfile, options: { provision: boolean; heard?: BrokerHeard }) {
  const topics = new Map<string, Unit[]>();
  const readings = new Set<Reading>();
  const stored = new Map<string, number>();
  const moods: Moods = { refused: new Map(), nack: 0, cut: 0, poison: new Map(), forgiving: false };

  const unitsOf = (topic: string): Unit[] => {
    let units = topics.get(topic);
    if (units === undefined) {
      units = Array.from({ length: profile.units }, (_, n) => ({ name: `${topic}/${n}`, messages: [], groups: new Map() }));
      topics.set(topic, units);
    }
    return units;
  };
  const absent = (topic: string): WaybillError | null => {
    const why = (moods.refused.get(topic) ?? 0) > 0 || !(options.provision || topics.has(topic)) ? `nothing takes ${topic}` : null;
    return why === null ? null : new WaybillError("DESTINATION_UNAVAILABLE", why);
  };
  const groupOf = (unit: Unit, consumer: string): Group => {
    let group = unit.groups.get(consumer);
    if (group === undefined) unit.groups.set(consumer, (group = { settled: 0, acked: new Set() }));
    return group;
  };

  const append = ({ topic, envelope, source }: Outgoing): void => {
    const now = clock.monotonic();
    // As the adapters do it: a letter is not the event, and not another consumer's letter of it.
    const name = `${topic} ${envelope.id} ${envelope.headers["waybill-dead-consumer"] ?? ""} ${envelope.headers["waybill-dead-at"] ?? ""}`;
    const seen = stored.get(name);
    if (profile.dedupeMs > 0 && seen !== undefined && now - seen < profile.dedupeMs) return;
    stored.set(name, now);
    const units = unitsOf(topic);
    const { messages } = units[spread(envelope.aggregateId, units.length)]!;
    messages.push({
      offset: (messages.at(-1)?.offset ?? 0) + 1,
      position: units.reduce((sum, unit) => sum + unit.messages.length, 0) + 1,
      topic,
      key: envelope.aggregateId,
      attributes: toAttributes(envelope, source),
      headers: { ...envelope.headers },
      data: envelope.data.slice(),
    });
    for (const reading of readings) notify(reading);
  };

  /** Gives the units of the topics to their readings anew. */
  const assign = (): void => {
    const groups = new Map<string, Reading[]>();
    for (const reading of readings) {
      for (const topic of reading.topics) {
        const name = `${reading.consumer}\0${topic}`;
        groups.set(name, [...(groups.get(name) ?? []), reading]);
      }
    }
    for (const [name, members] of groups) {
      const topic = name.slice(name.indexOf("\0") + 1);
      unitsOf(topic).forEach((unit, n) => {
        // Whoever reads everything reads beside the others: only a seat keeps them apart.
        const owners = profile.assign === "none" ? members : [members[profile.assign === "share" ? n % members.length : 0]!];
        for (const member of members) {
          if (!owners.includes(member)) member.units.delete(unit.name);
          else if (!member.units.has(unit.name)) {
            const { settled } = groupOf(unit, member.consumer);
            member.units.set(unit.name, { unit, next: settled + 1, settled, acked: new Set() });
          }
        }
      });
    }
    for (const reading of readings) notify(reading);
  };

  return {
    server,
    moods,
    profile,
    absent,
    /** One message, at the server. */
    accept(message: Outgoing, stopped: Set<string>, random: () => number): PublishResult {
      const aggregate = aggregateKey(message.envelope);
      if (stopped.has(aggregate)) return { status: "skipped" };
      const result = judge(message, random);
      if (result.status !== "stored") stopped.add(aggregate);
      else append(message);
      return result;
    },
    unheard: (message: Outgoing, gaveUpAt: number) => options.heard?.unheard?.(message, gaveUpAt),
    provision: (names: readonly string[]) => names.forEach(unitsOf),
    topicNames: () => [...topics.keys()],
    messages: (topic: string): readonly Message[] =>
      (topics.get(topic) ?? []).flatMap(({ messages }) => messages).sort((a, b) => a.position - b.position),
    open(consumer: string, names: readonly string[]): Reading {
      names.forEach(unitsOf);
      const reading: Reading = { consumer, topics: names, units: new Map(), waiting: new Set(), again: [], open: true };
      readings.add(reading);
      assign();
      return reading;
    },
    close(reading: Reading): void {
      if (!reading.open) return;
      reading.open = false;
      readings.delete(reading);
      notify(reading);
      assign();
    },
    next(reading: Reading, limit: number): readonly Message[] {
      const found: Message[] = reading.again.splice(0, limit);
      for (const cursor of reading.units.values()) {
        const { acked, settled } = groupOf(cursor.unit, reading.consumer);
        if (profile.singleAcks) cursor.next = Math.max(cursor.next, settled + 1);
        for (; cursor.next <= cursor.unit.messages.length && found.length < limit; cursor.next++) {
          if (!acked.has(cursor.next)) found.push(cursor.unit.messages[cursor.next - 1]!);
        }
      }
      return found;
    },
    ack(reading: Reading, message: Message): void {
      const units = unitsOf(message.topic);
      const unit = units.find(({ messages }) => messages[message.offset - 1] === message)!;
      const cursor = reading.units.get(unit.name);
      if (cursor === undefined) return; // it went to somebody else, and is theirs to commit
      const group = groupOf(unit, reading.consumer);
      const ledger = profile.singleAcks ? group : cursor;
      if (message.offset > ledger.settled) ledger.acked.add(message.offset);
      while (ledger.acked.delete(ledger.settled + 1)) ledger.settled++;
      group.settled = Math.max(group.settled, ledger.settled);
    },
    /** Delivers again what was not acknowledged: everything in its order, or single messages on top of what came since. */
    redeliver(consumer: string, random: () => number): void {
      for (const reading of readings) {
        if (reading.consumer !== consumer) continue;
        for (const cursor of reading.units.values()) {
          const { settled, acked } = groupOf(cursor.unit, consumer);
          if (!profile.singleAcks) cursor.next = Math.min(cursor.next, settled + 1);
          else
            for (let offset = settled + 1; offset < cursor.next; offset++)
              if (!acked.has(offset) && random() < 0.5) reading.again.push(cursor.unit.messages[offset - 1]!);
        }
        notify(reading);
      }
    },
  };

  function judge(message: Outgoing, random: () => number): PublishResult {
    const { topic, envelope, source } = message;
    const { maxBytes } = profile;
    try {
      checkTopicText(topic);
      checkSent(envelope, source);
    } catch (error) {
      return { status: "refused", blame: "event", retryable: false, error: error as WaybillError };
    }
    const left = moods.forgiving ? 0 : (moods.poison.get(envelope.id) ?? 0);
    if (envelope.data.byteLength > maxBytes) return refused("event", false, `event ${envelope.id} is larger than ${maxBytes} bytes`);
    if (left > 0) {
      moods.poison.set(envelope.id, left - 1);
      options.heard?.poisoned?.(message);
      return refused("event", left !== Infinity, `event ${envelope.id} is refused for what it is`);
    }
    const missing = absent(topic);
    if (missing !== null) return { status: "refused", blame: "destination", retryable: true, error: missing };
    if (moods.nack > 0 && random() < moods.nack) return refused("destination", true, "the broker does not take it now");
    return { status: "stored" };
  }
}

function notify({ waiting }: Reading): void {
  for (const wake of waiting) wake();
  waiting.clear();
}

export type Broker = ReturnType<typeof createBroker>;

function refused(blame: "event" | "destination", retryable: boolean, why: string): PublishResult {
  const error = new WaybillError(blame === "event" ? "MESSAGE_TOO_LARGE" : "DESTINATION_UNAVAILABLE", why);
  return { status: "refused", blame, retryable, error };
}

function spread(key: string, over: number): number {
  let hash = 7;
  for (let i = 0; i < key.length; i++) hash = Math.imul(hash ^ key.charCodeAt(i), 0x01000193) >>> 0;
  return hash % over;
}
