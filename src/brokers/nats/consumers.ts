import type { WaybillError } from "../../core/errors.ts";
import { outage } from "../kit/outage.ts";
import { codes, isApiError, type Api } from "./api.ts";
import { durablePrefix } from "./names.ts";
import type { Stream } from "./streams.ts";

/** A consumer's place in a topic. */
interface Reading {
  readonly consumer: string;
  readonly topic: string;
  readonly stream: Stream;
  /** How many may be unacknowledged. */
  readonly bound: number;
}

interface ConsumerInfo {
  readonly name: string;
  readonly config: { readonly opt_start_seq?: number };
  readonly ack_floor: { readonly stream_seq: number };
  readonly delivered: { readonly stream_seq: number; readonly consumer_seq: number };
  readonly num_ack_pending: number;
  readonly num_pending: number;
}

/** Longer than any message waits: one that the server redelivers by itself comes behind messages that followed it. */
const ackWaitNs = 10 * 365 * 86_400 * 1e9;

interface Taken {
  readonly durable: string;
  /** The stream sequence behind which the reading begins. */
  readonly from: number;
  /** Upper bound: how many of the numbers from `after` + 1 to `upTo` a predecessor had not acknowledged. */
  readonly undone: (after: number, upTo: number) => number;
}

/**
 * Creates a durable consumer that starts behind the last message which its predecessor had acknowledged without a gap, and deletes the
 * predecessor. An old durable would hold unacknowledged messages back until its ack wait expires, and deliver newer ones meanwhile.
 */
export async function takeOver(api: Api, reading: Reading, provision: boolean): Promise<Taken> {
  if (reading.stream.isQueue) {
    throw outage(
      `stream ${reading.stream.name} is a work queue, and ${reading.consumer} cannot come back to its place in one: its retention must be limits or interest`,
    );
  }
  const before = await durablesOf(api, reading);
  if (before.length === 0 && !provision) throw missing(reading);
  const { stream } = reading;
  const floors = before.map(({ ack_floor, config }) => Math.max(ack_floor.stream_seq, (config.opt_start_seq ?? 1) - 1));
  // A stream that has lost its last messages gives their numbers to the next ones.
  const from = before.length === 0 ? stream.firstSeq - 1 : Math.min(Math.max(...floors), stream.lastSeq);
  // Where gaps are not counted, the new durable never begins before the oldest message left: removed messages are reported once.
  const durable = await create(api, reading, stream.isGapless ? from : Math.max(from, stream.firstSeq - 1));
  for (const { name: old } of before) await remove(api, stream.name, old);
  // The server reports how many delivered messages were not acknowledged, not which. For a stream that has lost messages, nothing is known.
  const known = before.filter(({ delivered }) => delivered.stream_seq <= stream.lastSeq);
  const undoneOf = ({ delivered, num_ack_pending }: ConsumerInfo, after: number, upTo: number): number => {
    const read = Math.max(0, Math.min(upTo, delivered.stream_seq) - after);
    return upTo - after - read + Math.min(read, num_ack_pending);
  };
  const undone = (after: number, upTo: number): number => Math.min(upTo - after, ...known.map((info) => undoneOf(info, after, upTo)));
  return { durable, from, undone };
}

/** How many messages wait to be delivered, and how many deliveries were made before. */
export async function waitingFor(
  api: Api,
  stream: string,
  name: string,
): Promise<{ readonly waiting: number; readonly deliveries: number }> {
  const { num_pending, delivered } = await api.ask<ConsumerInfo>(`CONSUMER.INFO.${stream}.${name}`);
  return { waiting: num_pending, deliveries: delivered.consumer_seq };
}

/** How many messages the consumer has not acknowledged, delivered or not; null where it has no durable. */
export async function undoneBy(api: Api, reading: Omit<Reading, "bound">): Promise<number | null> {
  const durables = await durablesOf(api, reading);
  // There are two durables while one takes over from the other.
  return durables.length === 0 ? null : Math.min(...durables.map(({ num_pending, num_ack_pending }) => num_pending + num_ack_pending));
}

/** Creates a durable that begins with the oldest message of the stream. An existing one stays as it is. */
export async function makeDurable(api: Api, reading: Reading): Promise<void> {
  if ((await durablesOf(api, reading)).length === 0) await create(api, reading, reading.stream.firstSeq - 1);
}

async function create(api: Api, { consumer, topic, stream, bound }: Reading, floor: number): Promise<string> {
  const name = durablePrefix(consumer, topic) + api.connection.inbox().replaceAll(/^_INBOX\.|\W/g, "");
  await api.ask(`CONSUMER.DURABLE.CREATE.${stream.name}.${name}`, {
    stream_name: stream.name,
    config: {
      durable_name: name,
      description: `waybill consumer ${consumer} of ${topic}`,
      filter_subject: topic,
      ...(floor === 0 ? { deliver_policy: "all" } : { deliver_policy: "by_start_sequence", opt_start_seq: floor + 1 }),
      ack_policy: "explicit",
      ack_wait: ackWaitNs,
      max_ack_pending: bound,
      max_deliver: -1,
      replay_policy: "instant",
    },
  });
  return name;
}

async function remove(api: Api, stream: string, name: string): Promise<void> {
  try {
    await api.ask(`CONSUMER.DELETE.${stream}.${name}`);
  } catch (error) {
    if (!isApiError(error, codes.consumerNotFound)) throw error;
  }
}

async function durablesOf(api: Api, { consumer, topic, stream }: Omit<Reading, "bound">): Promise<readonly ConsumerInfo[]> {
  const prefix = durablePrefix(consumer, topic);
  const found: ConsumerInfo[] = [];
  for (let offset = 0, total = 1; offset < total;) {
    const page = await api.ask<{ total: number; consumers: readonly ConsumerInfo[] | null; missing?: readonly string[] | null }>(
      `CONSUMER.LIST.${stream.name}`,
      { offset },
    );
    const consumers = page.consumers ?? [];
    if (page.missing?.some((name) => name.startsWith(prefix)) === true) {
      throw outage(`stream ${stream.name} does not know how far ${consumer} has come: it lacks a leader`);
    }
    found.push(...consumers.filter(({ name }) => name.startsWith(prefix)));
    if (consumers.length === 0) break;
    total = page.total;
    offset += consumers.length;
  }
  return found;
}

function missing({ consumer, topic, stream }: Reading): WaybillError {
  return outage(
    `stream ${stream.name} has no durable consumer for ${consumer} on ${topic}: run waybill migrate --broker URL --topics ${topic} --consumers ${consumer}`,
  );
}
