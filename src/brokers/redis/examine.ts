import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import { pageOf } from "../../core/docs.ts";
import { applyRules, isAtLeast } from "../../core/finding.ts";
import { judgeTested, type Tested } from "../../core/tested.ts";
import { orAborted } from "../../core/time.ts";
import { migrate, rule } from "../kit/doctor.ts";
import { outage } from "../kit/outage.ts";
import { RedisRefusal, type Reply } from "./replies.ts";
import type { RedisCommand } from "./protocol.ts";
import { explain, type Link } from "./link.ts";

const asked = [
  "appendonly",
  "appendfsync",
  "no-appendfsync-on-rewrite",
  "save",
  "maxmemory",
  "maxmemory-policy",
  "min-replicas-to-write",
] as const;
type Name = (typeof asked)[number];

/** What the server answered; null for what this user may not ask, or the server does not know. */
export interface Answers {
  readonly config: Readonly<Record<Name, string | null>>;
  readonly version: string | null;
  /** Its own version where the server is Valkey: `version` is that of the Redis that it replaces. */
  readonly valkey: string | null;
  readonly role: string | null;
  readonly connectedReplicas: number | null;
  readonly topics: readonly TopicAnswers[];
  /** The option of the same name. */
  readonly replicas: number;
}

interface TopicAnswers {
  readonly topic: string;
  /** "stream", "none" or another kind of value. */
  readonly kind: string | null;
  /** How long until the key expires; -1 for never. */
  readonly expiresMs: number | null;
}

export function createExamination(link: Link, replicas: number): Examination {
  return { examine: async (topics, signal) => judge(await readAnswers(link, topics, replicas, signal)) };
}

export const judge = (answers: Answers): readonly Finding[] => [
  ...applyRules(serverRules, answers),
  ...answers.topics.flatMap((topic) => applyRules(topicRules, topic, topic.topic)),
];

const denied = `This user may not ask, or the server has no CONFIG: allow +config|get and +info, or see that it is set as ${pageOf("redis.md")} says.`;

export const tested: Readonly<Record<"redis" | "valkey", Tested>> = {
  redis: { server: "Redis", oldest: "7.0", newest: "8.0" },
  valkey: { server: "Valkey", oldest: "9.1", newest: "9.1" },
};
const versions = "before 6.2; unknown before 7.0 and after 8.0, and for a Valkey other than 9.1";

const serverRules: readonly Rule<Answers>[] = [
  rule("redis_version", versions, "LO", "upgrade the server", ({ version: is, valkey }, say) => {
    if (is === null) return say.unknown(null, denied);
    if (!isAtLeast(is, "6.2")) return say.bad(is, "Waybill needs commands that came with Redis 6.2");
    return valkey === null ? judgeTested(is, tested.redis, say) : judgeTested(valkey, tested.valkey, say.as("valkey_version"));
  }),
  rule("role", "a replica", "L", "name the primary in the URL", ({ role: is }, { good, bad, unknown }) => {
    if (is === null) return unknown(null, denied);
    if (is === "master") return good(is, "It takes writes.");
    return bad(is, "A replica takes no writes, so that nothing can be published to it");
  }),
  rule("appendonly", "`no`", "L", "set `appendonly yes`", ({ config: { appendonly: is, save } }, { good, bad, unknown }) => {
    if (is === null) return unknown(null, denied);
    if (is === "yes") return good(is, "What was answered is in the log.");
    const snapshots = save === null || save === "" ? "there are no snapshots either" : `snapshots (save ${save}) keep what is older`;
    return bad(is, `A server that ends loses acknowledged events; ${snapshots}`);
  }),
  rule("appendfsync", "`everysec` or `no`", "L", "set `appendfsync always`", ({ config: { appendfsync: is } }, { good, bad, unknown }) => {
    if (is === null) return unknown(null, denied);
    if (is === "always") return good(is, "What was answered is on the disk.");
    const lost = is === "everysec" ? "up to two seconds of acknowledged events" : "whatever the system had not written yet";
    return bad(is, `A machine that loses its power loses ${lost}`);
  }),
  rule("no-appendfsync-on-rewrite", "`yes`", "L", "set it to `no`", ({ config }, { good, bad, unknown }) => {
    const is = config["no-appendfsync-on-rewrite"];
    if (is === null) return unknown(null, denied);
    if (is === "no") return good(is, "The log is flushed while it is rewritten, too.");
    return bad(is, "While the log is rewritten nothing is flushed, whatever appendfsync says");
  }),
  // Streams have no expiry, so only the policies for all keys evict them.
  rule("maxmemory-policy", "`allkeys-…` with a `maxmemory`", "L", "set `noeviction`", ({ config }, { good, bad, unknown }) => {
    const is = config["maxmemory-policy"];
    if (is === null) return unknown(null, denied);
    if (!is.startsWith("allkeys-")) return good(is, "A full server refuses, and drops no stream.");
    if (config.maxmemory === "0") return good(is, "There is no maxmemory, so that nothing is evicted.");
    return bad(is, "When the memory is full, whole streams go");
  }),
  rule(
    "min-replicas-to-write",
    "replicas are connected and Redis waits for none; or below the option `replicas`",
    "LD",
    "publish with the option replicas: 1 or more, and set it to as many",
    ({ config, connectedReplicas: connected, replicas }, { good, bad, unknown }) => {
      const is = config["min-replicas-to-write"];
      if (is === null || connected === null) return unknown(null, denied);
      const said = `${is} (replicas connected: ${connected}, waited for: ${replicas})`;
      if (replicas > Number(is)) {
        const why = `While replicas are away, a message is stored again and again, since fewer than ${replicas} have it`;
        return bad(said, why, { breaks: "D", remedy: `set it to ${replicas}, so that it is refused instead` });
      }
      if (connected > 0 && replicas === 0)
        return bad(said, "A replica that is promoted may lack what the primary had acknowledged", { breaks: "L" });
      return good(said, "No message counts as stored before as many replicas have it as are waited for.");
    },
  ),
];

const topicRules: readonly Rule<TopicAnswers>[] = [
  rule("stream", "none for the topic, or a key of another kind", "L", migrate(), ({ topic, kind }, { good, bad, unknown }) => {
    if (kind === null) return unknown(null, denied);
    if (kind === "none") return bad(kind, "Events for it wait", { remedy: migrate(topic) });
    if (kind !== "stream") return bad(kind, `The key holds a ${kind}, so that events for it wait`, { remedy: "rename one of the two" });
    return good("there", "Entries stay until you trim the stream.");
  }),
  rule("expiry", "the stream has an `EXPIRE`", "L", "run `PERSIST`", ({ kind, expiresMs, topic }, { good, bad, unknown }) => {
    if (kind !== "stream") return [];
    if (expiresMs === null) return unknown(null, "This user may not ask (+pttl): check that the stream has no EXPIRE.");
    if (expiresMs < 0) return good("never", "The stream stays.");
    return bad(`in ${expiresMs} ms`, "The whole stream goes then, read or not", { remedy: `run PERSIST ${topic}` });
  }),
];

export const rules = [...serverRules, ...topicRules];

async function readAnswers(link: Link, topics: readonly string[], replicas: number, signal: AbortSignal): Promise<Answers> {
  const connection = await link.open(signal);
  const commands: RedisCommand[] = [
    ["INFO", "server"],
    ["INFO", "replication"],
    ...asked.map((name): RedisCommand => ["CONFIG", "GET", name]),
    ...topics.flatMap((topic): RedisCommand[] => [
      ["TYPE", topic],
      ["PTTL", topic],
    ]),
  ];
  const flight = link.send(connection, commands);
  await orAborted(flight.landed, signal, () => {
    throw outage(`${link.shown} did not answer in time`);
  });
  const replies = flight.answers.map((answer) => {
    if (answer instanceof RedisRefusal) return null;
    if (answer instanceof Error) throw explain(answer, link.shown);
    return answer ?? null;
  });
  const [server, replication, ...rest] = replies as [Reply, Reply, ...Reply[]];
  const pairs = rest.slice(0, asked.length);
  const kinds = rest.slice(asked.length);
  const connected = infoOf(replication, "connected_slaves");
  return {
    config: Object.fromEntries(asked.map((name, i) => [name, valueOf(pairs[i] ?? null)])) as Answers["config"],
    version: infoOf(server, "redis_version"),
    valkey: infoOf(server, "valkey_version"),
    role: infoOf(replication, "role"),
    connectedReplicas: connected === null ? null : Number(connected),
    topics: topics.map((topic, i) => ({ topic, kind: textOf(kinds[2 * i] ?? null), expiresMs: numberOf(kinds[2 * i + 1] ?? null) })),
    replicas,
  };
}

const textOf = (reply: Reply): string | null => (reply === null ? null : String(reply));
const numberOf = (reply: Reply): number | null => (reply === null ? null : Number(reply));

/** CONFIG GET answers with a name and its value, or with nothing where it knows no such name. */
const valueOf = (reply: Reply): string | null => (Array.isArray(reply) && reply.length === 2 ? String(reply[1]) : null);

const infoOf = (reply: Reply, name: string): string | null =>
  textOf(reply)
    ?.split("\r\n")
    .find((line) => line.startsWith(`${name}:`))
    ?.slice(name.length + 1) ?? null;
