import { show, WaybillError } from "../../core/errors.ts";
import { absent, codes, KafkaRefusal } from "./codes.ts";
import { persist, type Link, type Topic } from "./link.ts";
import type { Address } from "../kit/url.ts";

export interface Shape {
  readonly partitions: number;
  /** Null for as many as the brokers are set to. */
  readonly replicas: number | null;
}

/** A topic as writing to it needs it. */
export interface Place {
  readonly topic: Topic;
  /** The largest batch that the topic takes; Infinity where we may not know. */
  readonly limit: number;
  readonly brokers: ReadonlyMap<number, Address>;
}

/** What is known of topics, looked up when it is first needed, when it has turned out to be wrong, and after a while. */
export interface Directory {
  /** For each topic its place, or why there is none. Rejects when nobody can be asked. */
  find(topics: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, Place | Error>>;
  forget(topic: string): void;
}

const legal = /^(?!\.{1,2}$)[A-Za-z0-9._-]{1,249}$/;

export function checkTopic(topic: unknown, code: "ROUTE_FAILED" | "INVALID_OPTION"): void {
  if (typeof topic === "string" && legal.test(topic)) return;
  throw new WaybillError(
    code,
    `${show(topic)} cannot be a topic of Kafka: it takes letters, digits, dots, dashes and underscores, 249 at most`,
  );
}

const keptMs = 60_000;

export function createDirectory(link: Link, provision: Shape | null): Directory {
  const known = new Map<string, { readonly place: Place; readonly until: number }>();

  const look = async (topics: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, Place | Error>> => {
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
      // As they are now: while we look others up, somebody else may forget one of them.
      const places = new Map<string, Place | Error>();
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

/** Topics and brokers, in describeConfigs. */
export const resources = { topic: 2, broker: 4 } as const;

async function limitsOf(link: Link, topics: readonly string[], signal: AbortSignal): Promise<ReadonlyMap<string, number>> {
  if (topics.length === 0) return new Map();
  const asked = topics.map((topic) => ({
    resourceType: resources.topic,
    resourceName: topic,
    configurationKeys: ["max.message.bytes"],
  }));
  const { results } = await (await link.open(signal)).ask("describeConfigs", [asked, false, false]);
  // Not everybody may ask for it: then the broker says it when it refuses.
  const told = results.filter(({ errorCode }) => errorCode === codes.NONE);
  return new Map(told.map(({ resourceName, configs }) => [resourceName, Number(configs[0]?.value ?? Infinity)]));
}

/** Makes those that are not there, and waits until all of them have leaders; those that are there stay as they are. */
export async function createTopics(
  link: Link,
  topics: readonly string[],
  { partitions, replicas }: Shape,
  signal: AbortSignal,
): Promise<void> {
  if (topics.length === 0) return;
  const request = topics.map((name) => ({
    name,
    numPartitions: partitions,
    replicationFactor: replicas ?? -1,
    assignments: [],
    configs: [],
  }));
  const { topics: made } = await (await link.open(signal)).ask("createTopics", [request, link.timeoutMs, false]);
  for (const { name, errorCode, errorMessage } of made) {
    if (errorCode === codes.NONE || errorCode === codes.TOPIC_ALREADY_EXISTS) continue;
    throw new KafkaRefusal(errorCode, `${link.shown} does not make the topic ${JSON.stringify(name)}`, errorMessage);
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

/** With everything in them; those that are not there are no failure. */
export async function removeTopics(link: Link, topics: readonly string[], signal: AbortSignal): Promise<void> {
  if (topics.length === 0) return;
  const connection = await link.open(signal);
  const { responses } = await connection.ask("deleteTopics", [topics.map((name) => ({ name })), link.timeoutMs]);
  for (const { name, errorCode, errorMessage } of responses) {
    if (errorCode === codes.NONE || errorCode === codes.UNKNOWN_TOPIC_OR_PARTITION) continue;
    throw new KafkaRefusal(errorCode, `${link.shown} does not remove the topic ${JSON.stringify(name)}`, errorMessage);
  }
}
