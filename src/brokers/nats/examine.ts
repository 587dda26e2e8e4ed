import type { Examination } from "../../contracts/examination.ts";
import { BESIDE_PAYLOAD_BYTES, DEFAULT_MAX_PAYLOAD_BYTES } from "../../core/draft.ts";
import { asError } from "../../core/errors.ts";
import { bad, good, isAtLeast, unknown, type Finding } from "../../core/finding.ts";
import { inWords } from "../../core/in-words.ts";
import { orAborted } from "../../core/signal.ts";
import { createApi, type Api } from "./api.ts";
import type { Answer, Connection } from "./driver.ts";
import type { Link } from "./link.ts";

/** A stream's own, as STREAM.INFO has it; times in nanoseconds, and 0 or -1 where there is no limit. */
export interface StreamConfig {
  readonly name: string;
  readonly storage: string;
  readonly retention: string;
  readonly discard: string;
  readonly discard_new_per_subject?: boolean;
  readonly num_replicas: number;
  readonly max_msgs: number;
  readonly max_bytes: number;
  readonly max_msgs_per_subject: number;
  readonly max_age: number;
  readonly max_msg_size?: number;
  readonly duplicate_window?: number;
  readonly no_ack?: boolean;
  readonly sealed?: boolean;
}

export interface Answers {
  readonly version: string;
  /** Null where we may not ask. */
  readonly jetstream: boolean | null;
  readonly topics: readonly TopicAnswers[];
}

export interface TopicAnswers {
  readonly topic: string;
  /** Null where no stream takes the topic; the reason where we could not see. */
  readonly stream: StreamAnswers | Error | null;
}

export interface StreamAnswers {
  readonly config: StreamConfig;
  /** Of which the server is one; null for a server that stands alone. */
  readonly cluster: string | null;
}

export function createExamination(link: Link): Examination {
  return { examine: async (topics, signal) => judge(await readAnswers(await link.get(signal), link.place, topics, signal)) };
}

/** A stream that takes several of the topics is judged once. */
export function judge(answers: Answers): readonly Finding[] {
  const streams = new Map<string, StreamAnswers>();
  for (const { stream } of answers.topics) if (stream !== null && !(stream instanceof Error)) streams.set(stream.config.name, stream);
  return [
    serverVersion(answers),
    jetstream(answers),
    ...(answers.jetstream === false ? [] : answers.topics.map(judgeTopic)),
    ...[...streams.values()].flatMap((stream) => streamRules.map((rule) => rule(stream, answers.version))),
  ];
}

function serverVersion({ version }: Answers): Finding {
  if (isAtLeast(version, "2.9")) return good("server version", version, "2.9 or later is what Waybill is made for.");
  return unknown("server version", version, "Waybill is tested with NATS 2.9 and made for later ones: upgrade the server.");
}

function jetstream({ jetstream: on }: Answers): Finding {
  if (on === null) return unknown("jetstream", null, "This user may not ask ($JS.API.INFO); publishing tells whether there is one.");
  if (on) return good("jetstream", "on", "Streams keep what is published.");
  return bad(
    "jetstream",
    "off",
    "L",
    "Without JetStream nothing is kept or acknowledged, and events wait: switch it on, for this account too.",
  );
}

function judgeTopic({ topic, stream }: TopicAnswers): Finding {
  const setting = `stream of ${topic}`;
  if (stream instanceof Error) return unknown(setting, null, `${stream.message}: doctor needs the rights of a relay.`);
  if (stream === null) return bad(setting, "none", "L", `Events for it wait: run waybill migrate --broker … --topics ${topic}.`);
  return good(setting, stream.config.name, "It takes the topic.");
}

type StreamRule = (stream: StreamAnswers, version: string) => Finding;

const named = (what: string, { name }: StreamConfig): string => `${what} of stream ${name}`;

const storage: StreamRule = ({ config }) => {
  const setting = named("storage", config);
  if (config.storage === "file") return good(setting, "file", "Messages are on files.");
  return bad(setting, config.storage, "L", "Everything goes with the server: make a stream on files, and copy what is in this one.");
};

const retention: StreamRule = ({ config }) => {
  const setting = named("retention", config);
  if (config.retention === "limits") return good(setting, "limits", "Messages stay after consumers have read them.");
  const why =
    config.retention === "interest"
      ? "It drops what no consumer has asked for yet"
      : "It drops what one reader has acknowledged, and subscribers of Waybill cannot read it";
  return bad(setting, config.retention, "L", `${why}: make a stream with retention limits.`);
};

const acknowledging: StreamRule = ({ config }) => {
  const setting = named("no_ack", config);
  if (config.no_ack !== true) return good(setting, "false", "It acknowledges what it has stored.");
  return bad(setting, "true", "L", "It acknowledges nothing, and events wait: nats stream edit, with acknowledgements.");
};

const sealed: StreamRule = ({ config }) => {
  const setting = named("sealed", config);
  if (config.sealed !== true) return good(setting, "false", "It takes messages.");
  return bad(setting, "true", "L", "It takes no more messages, and events wait: give the topic to another stream.");
};

/** What is dropped to make room goes unread. */
const discard: StreamRule = ({ config }) => {
  const { discard: how, max_msgs, max_bytes, max_msgs_per_subject: perSubject } = config;
  const limits = [
    ...(how === "old" && max_msgs > 0 ? [`max_msgs ${max_msgs}`] : []),
    ...(how === "old" && max_bytes > 0 ? [`max_bytes ${max_bytes}`] : []),
    ...(perSubject > 0 && !(how === "new" && config.discard_new_per_subject === true) ? [`max_msgs_per_subject ${perSubject}`] : []),
  ];
  const setting = named("discard", config);
  if (limits.length === 0) return good(setting, how, "A stream that is full refuses, and drops nothing that is unread.");
  const remedy = "set discard new (and discard_new_per_subject), or lift the limit";
  return bad(setting, `${how}, ${limits.join(", ")}`, "L", `At the limit the oldest go, read or not: ${remedy}.`);
};

const shortestAgeMs = 86_400_000;

const maxAge: StreamRule = ({ config }) => {
  const setting = named("max_age", config);
  const ms = config.max_age / 1e6;
  if (ms <= 0) return good(setting, "none", "Messages do not go by age.");
  const value = inWords(ms);
  if (ms >= shortestAgeMs) return good(setting, value, "A subscriber that is away for longer misses what is older.");
  return bad(setting, value, "L", "A subscriber that is away for longer misses what is older: let messages stay for days.");
};

/** A lease of ten seconds, the take-over, and a publish that must be tried again. */
const horizonMs = 30_000;

const dedupe: StreamRule = ({ config }) => {
  const setting = named("duplicate_window", config);
  const ms = (config.duplicate_window ?? 0) / 1e6;
  const value = ms <= 0 ? "none" : inWords(ms);
  if (ms >= horizonMs) return good(setting, value, "What a relay sends again after a fault is stored once.");
  return bad(
    setting,
    value,
    "D",
    `A relay may send an event again ${inWords(horizonMs)} after a fault, and it is then stored twice: set it to two minutes, JetStream's own default.`,
  );
};

const replicas: StreamRule = ({ config, cluster }) => {
  const setting = named("num_replicas", config);
  const value = String(config.num_replicas);
  if (config.num_replicas > 1) return good(setting, value, "Another server has what one loses.");
  if (cluster === null) return good(setting, value, "The server stands alone: what its disk loses is lost.");
  return bad(setting, value, "L", `One server of the cluster ${cluster} has the stream, and takes it along when it is lost: set three.`);
};

/** The server's own setting, which its API does not tell. */
const flush: StreamRule = ({ config }, version) => {
  const setting = named("sync_interval", config);
  if (config.num_replicas >= 3) return good(setting, "not read", "Three servers have a message before it is acknowledged.");
  const lost = "A server acknowledges before it flushes, and a machine that loses its power loses up to two minutes of events";
  if (isAtLeast(version, "2.10"))
    return unknown(setting, null, `${lost}, unless its configuration has sync_interval: always, which cannot be asked for.`);
  return bad(setting, "2m", "L", `${lost}: upgrade to NATS 2.10 and set sync_interval: always, or keep three replicas on three machines.`);
};

const messageSize: StreamRule = ({ config }) => {
  const setting = named("max_msg_size", config);
  const most = config.max_msg_size ?? -1;
  if (most <= 0) return good(setting, "none", "The server's max_payload decides.");
  const needed = DEFAULT_MAX_PAYLOAD_BYTES + BESIDE_PAYLOAD_BYTES; // the stream counts headers too
  if (most >= needed) return good(setting, String(most), "The largest payload fits, with its headers.");
  return bad(
    setting,
    String(most),
    "L",
    `Events with up to ${DEFAULT_MAX_PAYLOAD_BYTES} bytes are added, and those that take more than this with their headers die: raise it to ${needed}.`,
  );
};

const streamRules = [storage, retention, acknowledging, sealed, discard, maxAge, dedupe, replicas, flush, messageSize];

async function readAnswers(connection: Connection, place: string, topics: readonly string[], signal: AbortSignal): Promise<Answers> {
  const jetstream = await readJetstream(connection, signal);
  const api = createApi(connection, place, signal);
  return {
    version: connection.version,
    jetstream,
    topics: jetstream === false ? [] : await Promise.all(topics.map(async (topic) => ({ topic, stream: await readStream(api, topic) }))),
  };
}

async function readJetstream(connection: Connection, signal: AbortSignal): Promise<boolean | null> {
  const late: Answer = { is: "silence", error: new Error("there was no answer in time") };
  const answer = await orAborted(connection.request({ subject: "$JS.API.INFO", data: new Uint8Array() }), signal, () => late);
  if (answer.is === "nobody") return false;
  if (answer.is !== "answer") return null;
  const { error } = JSON.parse(new TextDecoder().decode(answer.message.data)) as { error?: unknown };
  return error === undefined;
}

async function readStream(api: Api, topic: string): Promise<TopicAnswers["stream"]> {
  try {
    const { streams } = await api.ask<{ readonly streams: readonly string[] | null }>("STREAM.NAMES", { subject: topic });
    const [name] = streams ?? [];
    if (name === undefined) return null;
    const { config, cluster } = await api.ask<{ config: StreamConfig; cluster?: { name?: string } }>(`STREAM.INFO.${name}`);
    return { config, cluster: cluster?.name ?? null };
  } catch (error) {
    return asError(error);
  }
}
