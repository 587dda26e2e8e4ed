import type { WaybillError } from "../../core/errors.ts";
import { asWord } from "../../core/text.ts";
import { outage } from "../kit/outage.ts";
import { codes, isApiError, notJetStream, takerOf, type Api } from "./api.ts";
import { streamName } from "./names.ts";

export interface Stream {
  readonly name: string;
  readonly lastSeq: number;
  /** The number of the oldest message, or of the next one when the stream is empty. */
  readonly firstSeq: number;
  /** Null when it is empty. */
  readonly oldest: Date | null;
  /** Every number is a message of the topic, and only limits remove messages: a missing number was removed unread. */
  readonly isGapless: boolean;
  /** Only limits remove a message, whether it was read or not. */
  readonly isLimited: boolean;
  /** A message goes to one reader and is gone: there is no place in it to come back to. */
  readonly isQueue: boolean;
}

interface StreamInfo {
  readonly config: {
    readonly name: string;
    readonly no_ack?: boolean;
    readonly retention: string;
    readonly subjects?: readonly string[] | null;
    readonly mirror?: unknown;
    readonly sources?: readonly unknown[] | null;
  };
  readonly state: { readonly messages: number; readonly first_seq: number; readonly first_ts: string; readonly last_seq: number };
}

async function infoOf(api: Api, name: string): Promise<StreamInfo> {
  const what = `STREAM.INFO.${name}`;
  const info = await api.ask<Partial<StreamInfo>>(what);
  const { first_seq: first, last_seq: last, messages, first_ts: oldest } = (info.state ?? {}) as Partial<StreamInfo["state"]>;
  const numbers = [first, last, messages].every((number) => Number.isSafeInteger(number) && number! >= 0);
  if (!numbers || (messages !== 0 && Number.isNaN(Date.parse(String(oldest))))) throw notJetStream(api.place, what);
  if (typeof info.config?.retention !== "string" || !Array.isArray(info.config.subjects ?? [])) throw notJetStream(api.place, what);
  return info as StreamInfo;
}

export async function stateOf(api: Api, name: string): Promise<Pick<Stream, "firstSeq" | "lastSeq">> {
  const { state } = await infoOf(api, name);
  return { firstSeq: Math.max(1, state.first_seq), lastSeq: state.last_seq };
}

/** The stream that keeps a topic, or null. */
export async function findStream(api: Api, topic: string): Promise<Stream | null> {
  const name = await takerOf(api, topic);
  if (name === null) return null;
  const { config, state } = await infoOf(api, name);
  if (config.no_ack === true) throw outage(`stream ${name} of ${api.place} acknowledges nothing (no_ack): switch that off`);
  const { subjects, mirror, sources, retention } = config;
  return {
    name,
    lastSeq: state.last_seq,
    firstSeq: Math.max(1, state.first_seq),
    oldest: state.messages === 0 ? null : new Date(state.first_ts),
    isGapless: retention === "limits" && subjects?.length === 1 && subjects[0] === topic && !mirror && !sources?.length,
    isLimited: retention === "limits",
    isQueue: retention === "workqueue",
  };
}

/** The topic's stream. Where no stream takes the topic, one is created with so many replicas; with null, this throws instead. */
export async function streamFor(api: Api, topic: string, replicas: number | null): Promise<Stream> {
  if (replicas !== null) return makeStream(api, topic, replicas);
  const stream = await findStream(api, topic);
  if (stream === null) throw noStream(api.place, topic);
  return stream;
}

export const noStream = (place: string, topic: string): WaybillError =>
  outage(
    `no stream of ${place} takes the subject ${JSON.stringify(topic)}: run waybill migrate --broker ${place} --topics ${asWord(topic)}`,
  );

/** Finds the topic's stream, or creates one: on files, refusing messages when it is full rather than dropping unread ones. */
export async function makeStream(api: Api, topic: string, replicas: number): Promise<Stream> {
  const found = await findStream(api, topic);
  if (found !== null) return found;
  const name = streamName(topic);
  try {
    await api.ask(`STREAM.CREATE.${name}`, {
      name,
      description: `waybill topic ${topic}`,
      subjects: [topic],
      storage: "file",
      retention: "limits",
      discard: "new",
      num_replicas: replicas,
      max_consumers: -1,
      max_msgs: -1,
      max_bytes: -1,
      max_msg_size: -1,
      max_msgs_per_subject: -1,
    });
  } catch (error) {
    if (!isApiError(error, codes.streamNameInUse, codes.subjectsOverlap)) throw error;
    // Another process was quicker. Or the name is taken, and then still no stream takes the topic.
    const quicker = await findStream(api, topic);
    if (quicker !== null) return quicker;
    const why = `${api.place} cannot have the stream ${name} for the subject ${JSON.stringify(topic)}: ${error.message}`;
    throw outage(`${why}; make one that takes the subject, or add the subject to one`, error);
  }
  return { name, lastSeq: 0, firstSeq: 1, oldest: null, isGapless: true, isLimited: true, isQueue: false };
}
