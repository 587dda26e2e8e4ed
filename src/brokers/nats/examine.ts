import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import { DEFAULT_MAX_PAYLOAD_BYTES } from "../../core/draft.ts";
import { asError } from "../../core/errors.ts";
import { applyRules, isAtLeast } from "../../core/finding.ts";
import { inWords } from "../../core/in-words.ts";
import { judgeTested, type Tested } from "../../core/tested.ts";
import { orAborted } from "../../core/time.ts";
import { eventBytes, migrate, rule } from "../kit/doctor.ts";
import { answerIn, createApi, notJetStream, takerOf, type Api } from "./api.ts";
import type { Connection } from "./driver.ts";
import type { NatsAnswer } from "./requests.ts";
import type { Link } from "./link.ts";

/** A stream's configuration as STREAM.INFO reports it. Times are in nanoseconds, and 0 or -1 means no limit. */
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
  /** Null where this user may not ask, or got no answer. */
  readonly jetstream: boolean | null;
  readonly topics: readonly TopicAnswers[];
}

interface TopicAnswers {
  readonly topic: string;
  /** Null where no stream takes the topic; an error where the stream could not be read. */
  readonly stream: StreamAnswers | Error | null;
}

interface StreamAnswers {
  readonly config: StreamConfig;
  /** The name of the server's cluster; null for a server that stands alone. */
  readonly cluster: string | null;
}

export function createExamination(link: Link): Examination {
  return { examine: async (topics, signal) => judge(await readAnswers(await link.open(signal), link.place, topics, signal)) };
}

/** A stream that takes several of the topics is judged once. */
export function judge(answers: Answers): readonly Finding[] {
  const { version, jetstream, topics } = answers;
  const streams = new Map<string, StreamAnswers>();
  for (const { stream } of topics) if (stream !== null && !(stream instanceof Error)) streams.set(stream.config.name, stream);
  return [
    ...applyRules(serverRules, answers),
    ...(jetstream === false ? [] : topics.flatMap((topic) => applyRules(topicRules, topic, topic.topic))),
    ...[...streams].flatMap(([name, stream]) => applyRules(streamRules, { ...stream, version }, `stream ${name}`)),
  ];
}

export const tested: Tested = { server: "NATS", oldest: "2.9", newest: "2.15" };

const serverRules: readonly Rule<Answers>[] = [
  rule("server version", "unknown before 2.9 and after 2.15", "", "upgrade the server", ({ version }, say) =>
    judgeTested(version, tested, say),
  ),
  rule(
    "jetstream",
    "off for the server or the account",
    "L",
    "switch it on, for this account too",
    ({ jetstream: on }, { good, bad, unknown }) => {
      if (on === null) return unknown(null, "This user may not ask ($JS.API.INFO); publishing tells whether there is one.");
      if (on) return good("on", "Streams keep what is published.");
      return bad("off", "Without JetStream nothing is kept or acknowledged, and events wait");
    },
  ),
];

const topicRules: readonly Rule<TopicAnswers>[] = [
  rule("stream", "no stream takes the topic", "L", migrate(), ({ topic, stream }, { good, bad, unknown }) => {
    if (stream instanceof Error) return unknown(null, `${stream.message}: doctor needs the rights of a relay.`);
    if (stream === null) return bad("none", "Events for it wait", { remedy: migrate(topic) });
    return good(stream.config.name, "It takes the topic.");
  }),
];

const shortestAgeMs = 86_400_000;
/** A lease of ten seconds, the take-over, and a publish that must be tried again. */
const horizonMs = 30_000;

const streamRules: readonly Rule<StreamAnswers & Pick<Answers, "version">>[] = [
  rule("storage", "`memory`", "L", "make a stream on files, and copy what is in this one", ({ config: { storage } }, { good, bad }) =>
    storage === "file" ? good(storage, "Messages are on files.") : bad(storage, "Everything goes with the server"),
  ),
  rule(
    "retention",
    "`interest` or `workqueue`",
    "L",
    "make a stream with retention `limits`",
    ({ config: { retention } }, { good, bad }) => {
      if (retention === "limits") return good(retention, "Messages stay after consumers have read them.");
      if (retention === "interest") return bad(retention, "It drops what no consumer has asked for yet");
      return bad(retention, "It drops what one reader has acknowledged, and subscribers of Waybill cannot read it");
    },
  ),
  rule("no_ack", "true", "L", "`nats stream edit`, with acknowledgements", ({ config }, { good, bad }) =>
    config.no_ack === true ? bad("true", "It acknowledges nothing, and events wait") : good("false", "It acknowledges what it has stored."),
  ),
  rule("sealed", "true", "L", "give the topic to another stream", ({ config }, { good, bad }) =>
    config.sealed === true ? bad("true", "It takes no more messages, and events wait") : good("false", "It takes messages."),
  ),
  rule(
    "discard",
    "`old` with `max_msgs` or `max_bytes`; `max_msgs_per_subject` that drops",
    "L",
    "set discard `new` (and `discard_new_per_subject`), or lift the limit",
    ({ config }, { good, bad }) => {
      const { discard: how, max_msgs, max_bytes, max_msgs_per_subject: perSubject } = config;
      const limits = [
        ...(how === "old" && max_msgs > 0 ? [`max_msgs ${max_msgs}`] : []),
        ...(how === "old" && max_bytes > 0 ? [`max_bytes ${max_bytes}`] : []),
        ...(perSubject > 0 && !(how === "new" && config.discard_new_per_subject === true) ? [`max_msgs_per_subject ${perSubject}`] : []),
      ];
      if (limits.length === 0) return good(how, "A stream that is full refuses, and drops nothing that is unread.");
      return bad(`${how}, ${limits.join(", ")}`, "At the limit the oldest go, read or not");
    },
  ),
  rule("max_age", "shorter than a day", "L", "let messages stay for days", ({ config }, { good, bad }) => {
    const ms = config.max_age / 1e6;
    if (ms <= 0) return good("none", "Messages do not go by age.");
    const why = "A subscriber that is away for longer misses what is older";
    return ms >= shortestAgeMs ? good(inWords(ms), `${why}.`) : bad(inWords(ms), why);
  }),
  rule(
    "duplicate_window",
    "shorter than 30 s, within which a relay sends again after a fault",
    "D",
    "set it to two minutes, JetStream's own default",
    ({ config }, { good, bad }) => {
      const ms = (config.duplicate_window ?? 0) / 1e6;
      const value = ms <= 0 ? "none" : inWords(ms);
      if (ms >= horizonMs) return good(value, "What a relay sends again after a fault is stored once.");
      return bad(value, `A relay may send an event again ${inWords(horizonMs)} after a fault, and it is then stored twice`);
    },
  ),
  rule(
    "num_replicas",
    "1 in a cluster",
    "L",
    "`nats stream edit --replicas 3`, and `replicas=3` in the URL for new streams",
    ({ config, cluster }, { good, bad }) => {
      const value = String(config.num_replicas);
      if (config.num_replicas > 1) return good(value, "Another server has what one loses.");
      if (cluster === null) return good(value, "The server stands alone: what its disk loses is lost.");
      return bad(value, `One server of the cluster ${cluster} has the stream, and takes it along when it is lost`);
    },
  ),
  // A setting of the server, which its API does not report.
  rule(
    "sync_interval",
    "before 2.10, without three replicas; later versions do not report it",
    "L",
    "upgrade to NATS 2.10 and set `sync_interval: always`, or keep three replicas on three machines",
    ({ config, version }, { good, bad, unknown }) => {
      if (config.num_replicas >= 3) return good("not read", "Three servers have a message before it is acknowledged.");
      const lost = "A server acknowledges before it flushes, and a machine that loses its power loses up to two minutes of events";
      if (!isAtLeast(version, "2.10")) return bad("2m", lost);
      return unknown(null, `${lost}, unless its configuration has sync_interval: always, which cannot be asked for.`);
    },
  ),
  rule("max_msg_size", "below 256 KiB", "L", `raise it to ${eventBytes}`, ({ config: { max_msg_size: most = -1 } }, { good, bad }) => {
    if (most <= 0) return good("none", "The server's max_payload decides.");
    if (most >= eventBytes) return good(String(most), "The largest payload fits, with its headers.");
    const why = `Events with up to ${DEFAULT_MAX_PAYLOAD_BYTES} bytes are added`;
    return bad(String(most), `${why}, and those that take more than this with their headers die`);
  }),
];

export const rules = [...serverRules, ...topicRules, ...streamRules];

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
  const late: NatsAnswer = { is: "silence", error: new Error("there was no answer in time") };
  const answer = await orAborted(connection.request("$JS.API.INFO", new Uint8Array()), signal, () => late);
  if ("is" in answer) return answer.is === "nobody" ? false : null;
  const told = answerIn(answer);
  return told === null ? null : told.error === undefined;
}

async function readStream(api: Api, topic: string): Promise<TopicAnswers["stream"]> {
  try {
    const name = await takerOf(api, topic);
    if (name === null) return null;
    const { config, cluster } = await api.ask<{ config: StreamConfig; cluster?: { name?: string } }>(`STREAM.INFO.${name}`);
    return { config: checked(config, api.place), cluster: cluster?.name ?? null };
  } catch (error) {
    return asError(error);
  }
}

function checked(config: StreamConfig, place: string): StreamConfig {
  const { storage, retention, discard, name, ...numbers } = (config as Partial<StreamConfig> | null | undefined) ?? {};
  const words = [storage, retention, discard, name].every((word) => typeof word === "string");
  const { num_replicas, max_msgs, max_bytes, max_msgs_per_subject, max_age } = numbers;
  const limits = [num_replicas, max_msgs, max_bytes, max_msgs_per_subject, max_age].every((limit) => typeof limit === "number");
  if (!words || !limits) throw notJetStream(place, "STREAM.INFO");
  return config;
}
