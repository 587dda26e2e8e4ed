import type { Examination } from "../../contracts/examination.ts";
import { bad, good, isAtLeast, unknown, type Finding } from "../../core/finding.ts";
import { orAborted } from "../../core/signal.ts";
import { WaybillError } from "../../core/errors.ts";
import { RedisRefusal, type Command, type Reply } from "./driver.ts";
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

/** What the server said; null for what we may not ask. */
export interface Answers {
  readonly config: Readonly<Record<Name, string | null>>;
  readonly version: string | null;
  readonly role: string | null;
  readonly connectedReplicas: number | null;
  readonly topics: readonly TopicAnswers[];
  /** The option of the same name. */
  readonly replicas: number;
}

export interface TopicAnswers {
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
  ...[version, role, appendOnly, appendFsync, fsyncOnRewrite, eviction, copies].map((rule) => rule(answers)),
  ...answers.topics.flatMap(judgeTopic),
];

const denied = (setting: string): Finding =>
  unknown(
    setting,
    null,
    "This user may not ask, or the server has no CONFIG: see that it is set as docs/redis.md says, or allow +config|get and +info.",
  );

function version({ version: is }: Answers): Finding {
  if (is === null) return denied("redis_version");
  if (isAtLeast(is, "6.2")) return good("redis_version", is, "6.2 or later is needed.");
  return bad("redis_version", is, "LO", "Waybill needs commands that came with Redis 6.2: upgrade the server.");
}

function role({ role: is }: Answers): Finding {
  if (is === null) return denied("role");
  if (is === "master") return good("role", is, "It takes writes.");
  return bad("role", is, "L", "A replica takes no writes, so that nothing can be published to it: name the primary in the URL.");
}

function appendOnly({ config }: Answers): Finding {
  const { appendonly: value, save } = config;
  if (value === null) return denied("appendonly");
  if (value === "yes") return good("appendonly", value, "What was answered is in the log.");
  const snapshots = save === null || save === "" ? "there are no snapshots either" : `snapshots (save ${save}) keep what is older`;
  return bad("appendonly", value, "L", `A server that ends loses acknowledged events; ${snapshots}: set appendonly yes.`);
}

function appendFsync({ config }: Answers): Finding {
  const { appendfsync: value } = config;
  if (value === null) return denied("appendfsync");
  if (value === "always") return good("appendfsync", value, "What was answered is on the disk.");
  const lost = value === "everysec" ? "up to two seconds of acknowledged events" : "whatever the system had not written yet";
  return bad("appendfsync", value, "L", `A machine that loses its power loses ${lost}: set appendfsync always.`);
}

function fsyncOnRewrite({ config }: Answers): Finding {
  const setting = "no-appendfsync-on-rewrite";
  const value = config[setting];
  if (value === null) return denied(setting);
  if (value === "no") return good(setting, value, "The log is flushed while it is rewritten, too.");
  return bad(setting, value, "L", "While the log is rewritten nothing is flushed, whatever appendfsync says: set it to no.");
}

/** Streams have no expiry, so that only the policies for all keys touch them. */
function eviction({ config }: Answers): Finding {
  const { "maxmemory-policy": policy, maxmemory } = config;
  if (policy === null) return denied("maxmemory-policy");
  if (!policy.startsWith("allkeys-")) return good("maxmemory-policy", policy, "A full server refuses, and drops no stream.");
  if (maxmemory === "0") return good("maxmemory-policy", policy, "There is no maxmemory, so that nothing is evicted.");
  return bad("maxmemory-policy", policy, "L", "When the memory is full, whole streams go: set noeviction.");
}

function copies({ config, connectedReplicas, replicas }: Answers): Finding {
  const setting = "min-replicas-to-write";
  const value = config[setting];
  if (value === null || connectedReplicas === null) return denied(setting);
  const said = `${value} (replicas connected: ${connectedReplicas}, waited for: ${replicas})`;
  if (replicas > Number(value))
    return bad(
      setting,
      said,
      "D",
      `While replicas are away, a message is stored again and again, since fewer than ${replicas} have it: set it to ${replicas}, so that it is refused instead.`,
    );
  if (connectedReplicas > 0 && replicas === 0)
    return bad(
      setting,
      said,
      "L",
      "A replica that is promoted may lack what the primary had acknowledged: publish with the option replicas: 1 or more, and set it to as many.",
    );
  return good(setting, said, "No message counts as stored before as many replicas have it as are waited for.");
}

function judgeTopic({ topic, kind, expiresMs }: TopicAnswers): readonly Finding[] {
  const [stream, expiry] = [`stream of ${topic}`, `expiry of ${topic}`];
  if (kind === null) return [denied(stream)];
  if (kind === "none") return [bad(stream, "none", "L", `Events for it wait: run waybill migrate --broker … --topics ${topic}.`)];
  if (kind !== "stream") return [bad(stream, kind, "L", `The key holds a ${kind}, so that events for it wait: rename one of the two.`)];
  const found = good(stream, "there", "Entries stay until you trim the stream.");
  if (expiresMs === null) return [found, unknown(expiry, null, "This user may not ask (+pttl): check that the stream has no EXPIRE.")];
  if (expiresMs < 0) return [found, good(expiry, "never", "The stream stays.")];
  return [found, bad(expiry, `in ${expiresMs} ms`, "L", `The whole stream goes then, read or not: run PERSIST ${topic}.`)];
}

async function readAnswers(link: Link, topics: readonly string[], replicas: number, signal: AbortSignal): Promise<Answers> {
  const connection = await link.open(signal);
  const commands: Command[] = [
    ["INFO", "server"],
    ["INFO", "replication"],
    ...asked.map((name): Command => ["CONFIG", "GET", name]),
    ...topics.flatMap((topic): Command[] => [
      ["TYPE", topic],
      ["PTTL", topic],
    ]),
  ];
  const flight = link.send(connection, commands);
  await orAborted(flight.landed, signal, () => {
    throw new WaybillError("DESTINATION_UNAVAILABLE", `${link.shown} did not answer in time`);
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
