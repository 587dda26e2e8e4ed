import type { WaybillError } from "../../core/errors.ts";
import { asWord } from "../../core/text.ts";
import { outage } from "../kit/outage.ts";
import { codes, isApiError, notJetStream, type Api } from "./api.ts";
import { fields, markOf, type ReadingMark } from "./marks.ts";
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

interface ConsumerConfig {
  readonly opt_start_seq?: number;
  readonly max_ack_pending?: number;
  readonly metadata?: Readonly<Record<string, string>>;
}

interface ConsumerInfo {
  readonly name: string;
  readonly config: ConsumerConfig;
  readonly ack_floor: { readonly stream_seq: number };
  readonly delivered: { readonly stream_seq: number; readonly consumer_seq: number };
  readonly num_ack_pending: number;
  readonly num_pending: number;
}

/** Longer than any message waits: one that the server redelivers by itself comes behind messages that followed it. */
const ackWaitNs = 10 * 365 * 86_400 * 1e9;

interface Taken {
  readonly durable: string;
  /** The number behind which the reading begins. */
  readonly from: number;
  /** How many numbers were removed behind the last one that the predecessors had done without a gap. */
  readonly removed: number;
  /** Upper bound: how many of the numbers from `after` + 1 to `upTo` a predecessor had not acknowledged. */
  readonly undone: (after: number, upTo: number) => number;
  /** Notes on the durable how far the reading has come; null where the server keeps no notes (before 2.10). Rejects like `ask`. */
  readonly note: ((api: Api, mark: ReadingMark) => Promise<void>) | null;
}

/** What a predecessor had done: all numbers up to `floor`, and of those up to `read` all but `open`. The last two are bounds. */
type Progress = Pick<ReadingMark, "floor" | "read" | "open">;

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
  // A stream that has lost its last messages gives their numbers to the next ones.
  const within = (floors: readonly number[]): number => Math.min(Math.max(...floors), stream.lastSeq);
  const acked = before.length === 0 ? stream.firstSeq - 1 : within(before.map(ackFloorOf));
  const floor = before.length === 0 ? acked : Math.min(acked, within(before.map((info) => progressOf(info).floor)));
  // The new durable never begins before the oldest message left: removed messages are reported once.
  const from = Math.max(acked, stream.firstSeq - 1);
  const { name: durable, note } = await create(api, reading, from);
  for (const { name: old } of before) await remove(api, stream.name, old);
  // It is known how many delivered messages were not acknowledged, not which. For a stream that has lost messages, nothing is known.
  const known = before.filter(({ delivered }) => delivered.stream_seq <= stream.lastSeq).map(progressOf);
  const undoneOf = ({ read, open }: Progress, after: number, upTo: number): number => {
    const delivered = Math.max(0, Math.min(upTo, read) - after);
    return upTo - after - delivered + Math.min(delivered, open);
  };
  const undone = (after: number, upTo: number): number => Math.min(upTo - after, ...known.map((one) => undoneOf(one, after, upTo)));
  return { durable, from, removed: Math.max(0, stream.firstSeq - 1 - floor), undone, note };
}

const ackFloorOf = ({ ack_floor, config }: ConsumerInfo): number => Math.max(ack_floor.stream_seq, (config.opt_start_seq ?? 1) - 1);

/**
 * From NATS 2.10 on, a server that removes messages counts them as delivered and acknowledged. So the reading's own note tells, and only
 * the number of deliveries since the note is the server's. Before 2.10 there are no notes, and a purge leaves the floors as they are.
 */
function progressOf(info: ConsumerInfo): Progress {
  const mark = markOf(info.config.metadata);
  if (mark === null) return { floor: ackFloorOf(info), read: info.delivered.stream_seq, open: info.num_ack_pending };
  const since = Math.max(0, info.delivered.consumer_seq - mark.deliveries);
  return { floor: mark.floor, read: mark.read + since, open: Math.min(mark.open + since, info.config.max_ack_pending ?? Infinity) };
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

async function create(
  api: Api,
  { consumer, topic, stream, bound }: Reading,
  floor: number,
): Promise<{ readonly name: string; readonly note: Taken["note"] }> {
  const name = durablePrefix(consumer, topic) + api.connection.inbox().replaceAll(/^_INBOX\.|\W/g, "");
  const bodyAt = (mark: ReadingMark, action: "create" | "update"): object => ({
    stream_name: stream.name,
    action,
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
      metadata: fields(mark),
    },
  });
  const what = `CONSUMER.DURABLE.CREATE.${stream.name}.${name}`;
  const { config } = await api.ask<ConsumerInfo>(what, bodyAt({ floor, read: floor, open: 0, deliveries: 0 }, "create"));
  // A server that keeps no metadata does not know `update` either, and would create a durable again that was deleted.
  if (markOf(config.metadata) === null) return { name, note: null };
  return { name, note: async (on, mark) => void (await on.ask(what, bodyAt(mark, "update"))) };
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
    if (!Array.isArray(consumers) || !consumers.every(isInfo)) throw notJetStream(api.place, "CONSUMER.LIST");
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

function isInfo(value: unknown): value is ConsumerInfo {
  const { name, config, ack_floor, delivered, num_ack_pending, num_pending } = (value ?? {}) as Partial<ConsumerInfo>;
  const numbers = [ack_floor?.stream_seq, delivered?.stream_seq, delivered?.consumer_seq, num_ack_pending, num_pending];
  return typeof name === "string" && typeof config === "object" && numbers.every((number) => Number.isSafeInteger(number));
}

function missing({ consumer, topic, stream }: Reading): WaybillError {
  return outage(
    `stream ${stream.name} has no durable consumer for ${consumer} on ${topic}: run waybill migrate --broker URL --topics ${asWord(topic)} --consumers ${consumer}`,
  );
}
