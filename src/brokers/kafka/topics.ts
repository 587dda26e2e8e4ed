import { show, WaybillError } from "../../core/errors.ts";
import { absent, codes, KafkaRefusal, succeed } from "./codes.ts";
import { persist, type Link, type Topic } from "./link.ts";
import { readSettings } from "./settings.ts";
import type { Address } from "../kit/url.ts";
import { batchHeadBytes } from "./writing/batch.ts";

interface Shape {
  readonly partitions: number;
  /** Null for as many as the brokers are set to. */
  readonly replicas: number | null;
}

/** What is needed to write to a topic. */
export interface WritableTopic {
  readonly topic: Topic;
  /** The largest batch that the topic takes; Infinity where we may not know. */
  readonly limit: number;
  readonly brokers: ReadonlyMap<number, Address>;
}

/** A cache of topics. A topic is looked up on first use, when its entry has turned out to be wrong, and after a while. */
export interface Directory {
  /** For each topic its place, or why there is none. Rejects when no broker can be asked. */
  find(topics: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, WritableTopic | Error>>;
  forget(topic: string): void;
}

const legal = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;

export const isTopic = (topic: unknown): boolean => typeof topic === "string" && legal.test(topic);

export function checkTopic(topic: unknown, code: "ROUTE_FAILED" | "INVALID_OPTION"): void {
  if (isTopic(topic)) return;
  throw new WaybillError(
    code,
    `${show(topic)} cannot be a topic of Kafka: it takes letters, digits, dots, dashes and underscores, 249 at most`,
  );
}

export const noLeader = (shown: string, topic: string, partition: number): WaybillError =>
  new WaybillError("DESTINATION_UNAVAILABLE", `${shown}: partition ${partition} of ${topic} has no leader`);

const keptMs = 60_000;

export function createDirectory(link: Link, provision: Shape | null): Directory {
  const known = new Map<string, { readonly place: WritableTopic; readonly until: number }>();

  const look = async (topics: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, WritableTopic | Error>> => {
    let { topics: found, brokers } = await link.look(topics, signal);
    const missing = topics.filter((topic) => isAbsent(found.get(topic)));
    if (provision !== null && missing.length > 0) {
      await createTopics(link, missing, provision, signal);
      ({ topics: found, brokers } = await link.look(topics, signal));
    }
    const there = topics.filter((topic) => !(found.get(topic) instanceof Error));
    const limits = await limitsOf(link, there, signal);
    return new Map(
      topics.map((name) => {
        const topic = found.get(name) ?? absent(link.shown, name);
        return [name, topic instanceof Error ? topic : { topic, brokers, limit: limits.get(name) ?? Infinity }];
      }),
    );
  };

  return {
    async find(topics, signal) {
      const now = link.clock.monotonic();
      // Copied now: while we look up other topics, another caller may `forget` one of these.
      const places = new Map<string, WritableTopic | Error>();
      for (const topic of topics) {
        const one = known.get(topic);
        if (one !== undefined && one.until >= now) places.set(topic, one.place);
      }
      const stale = topics.filter((topic) => !places.has(topic));
      for (const [name, place] of stale.length === 0 ? [] : await look(stale, signal)) {
        places.set(name, place);
        if (!(place instanceof Error)) known.set(name, { place, until: now + keptMs });
      }
      return places;
    },
    forget: (topic) => void known.delete(topic),
  };
}

const isAbsent = (found: Topic | Error | undefined): boolean =>
  found === undefined || (found instanceof WaybillError && !(found instanceof KafkaRefusal));

/** A user without the right to ask learns the limit from the broker's refusal. */
async function limitsOf(link: Link, topics: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
  const told = await readSettings(await link.open(signal), "topic", topics, ["max.message.bytes"]);
  return new Map([...told].map(([name, own]) => [name, own instanceof Error ? Infinity : limitIn(own["max.message.bytes"])]));
}

/** A limit that no batch fits is none: the broker's refusal says more, and blames no event. */
function limitIn(told: string | undefined): number {
  const limit = Number(told ?? Infinity);
  return limit > batchHeadBytes ? limit : Infinity;
}

/** Creates missing topics, and waits until all partitions of these topics have leaders. Existing topics stay as they are. */
export async function createTopics(
  link: Link,
  topics: readonly string[],
  { partitions, replicas }: Shape,
  signal: AbortSignal,
): Promise<void> {
  if (topics.length === 0) return;
  const shape = { numPartitions: partitions, replicationFactor: replicas ?? -1, assignments: [], configs: [] };
  const request = topics.map((name) => ({ name, ...shape }));
  const { topics: made } = await (await link.open(signal)).ask("createTopics", [request, link.timeoutMs, false]);
  for (const { name, errorCode, errorMessage } of made) {
    if (errorCode === codes.TOPIC_ALREADY_EXISTS) continue;
    succeed(errorCode, `${link.shown} does not make the topic ${JSON.stringify(name)}`, errorMessage);
  }
  await persist(link, signal, async () => {
    const { topics: found } = await link.look(topics, signal);
    for (const name of topics) {
      const topic = found.get(name);
      const led = topic !== undefined && !(topic instanceof Error) && topic.partitions.every(({ leader }) => leader >= 0);
      if (!led) throw new KafkaRefusal(codes.LEADER_NOT_AVAILABLE, `${link.shown}, topic ${JSON.stringify(name)}`);
    }
  });
}

/** Deletes topics with everything in them. A missing topic is no failure. */
export async function removeTopics(link: Link, topics: readonly string[], signal: AbortSignal): Promise<void> {
  if (topics.length === 0) return;
  const connection = await link.open(signal);
  const { responses } = await connection.ask("deleteTopics", [topics.map((name) => ({ name })), link.timeoutMs]);
  for (const { name, errorCode, errorMessage } of responses) {
    if (errorCode === codes.UNKNOWN_TOPIC_OR_PARTITION) continue;
    succeed(errorCode, `${link.shown} does not remove the topic ${JSON.stringify(name)}`, errorMessage);
  }
}
