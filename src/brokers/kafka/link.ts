import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { oneConnection } from "../kit/one-connection.ts";
import { follow, orAborted, shared } from "../../core/signal.ts";
import { absent, codes, isPassing, KafkaRefusal } from "./codes.ts";
import { connect, type Connection } from "./driver.ts";
import { written, type Address } from "../kit/url.ts";
import type { Settings } from "./url.ts";
import type { MetadataAnswer } from "./wire.ts";

export interface Topic {
  readonly name: string;
  readonly id: string;
  /** By their numbers. */
  readonly partitions: readonly { readonly leader: number; readonly replicas: number }[];
}

/** What the brokers say of themselves and of topics. */
export interface Cluster {
  readonly brokers: ReadonlyMap<number, Address>;
  readonly topics: ReadonlyMap<string, Topic | Error>;
}

export interface Link {
  /** A connection to any broker, for questions that each of them can answer; opened anew whenever it has been lost. */
  open(signal: AbortSignal): Promise<Connection>;
  /** A connection of its own, which ends with the signal. */
  dial(address: Address, signal: AbortSignal): Promise<Connection>;
  /** Never makes a topic. */
  look(topics: readonly string[] | null, signal: AbortSignal): Promise<Cluster>;
  /** Where the coordinator of a group, or of a transaction, is. */
  coordinator(kind: "group" | "transaction", key: string, signal: AbortSignal): Promise<Address>;
  readonly clock: Clock;
  readonly timeoutMs: number;
  readonly shown: string;
  readonly closing: AbortSignal;
  close(): void;
}

export function createLink({
  settings,
  clock,
  timeoutMs,
}: {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly timeoutMs: number;
}): Link {
  const { shown } = settings;
  const closing = shared(new AbortController());
  let known: readonly Address[] = [];

  const dial: Link["dial"] = async (address, outer) => {
    if (closing.signal.aborted) throw closed(shown);
    const { signal, release } = follow(outer, closing.signal);
    try {
      const connection = await connect({ address, settings, clock, timeoutMs }, signal);
      for (const ending of [outer, closing.signal]) {
        const end = (): void => connection.end(closed(shown));
        if (ending.aborted) end();
        ending.addEventListener("abort", end, { once: true });
        connection.ended.addEventListener("abort", () => ending.removeEventListener("abort", end));
      }
      return connection;
    } finally {
      release();
    }
  };

  /** The first that takes a connection: those of the URL, then those that we have heard of. */
  const dialAny = async (): Promise<Connection> => {
    const tried = new Map([...settings.addresses, ...known].map((address) => [written(address), address]));
    let first: unknown = null;
    for (const address of tried.values()) {
      try {
        return await dial(address, closing.signal);
      } catch (error) {
        first ??= error;
      }
    }
    throw first;
  };

  const open: Link["open"] = oneConnection(shown, dialAny);

  const off = (): never => {
    throw new WaybillError("STOPPED", `${shown} was not waited for any longer`);
  };

  return {
    ...{ shown, clock, timeoutMs, open, dial, closing: closing.signal },
    async look(topics, signal) {
      const connection = await open(signal);
      const answer = await orAborted(connection.ask("metadata", [topics, false]), signal, off);
      known = answer.brokers;
      return clusterOf(answer, shown);
    },
    async coordinator(kind, key, signal) {
      const connection = await open(signal);
      const asked = connection.ask("findCoordinator", [kind === "group" ? 0 : 1, [key]]);
      const [found] = (await orAborted(asked, signal, off)).coordinators;
      const code = found?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE;
      if (code !== codes.NONE || found === undefined) throw new KafkaRefusal(code, `${shown}, coordinator of the ${kind} ${key}`);
      return { host: found.host, port: found.port };
    },
    close: () => closing.abort(),
  };
}

const closed = (shown: string): WaybillError => new WaybillError("STOPPED", `the connection to ${shown} was closed`);

function clusterOf({ brokers, topics }: MetadataAnswer, shown: string): Cluster {
  return {
    brokers: new Map(brokers.map(({ nodeId, host, port }) => [nodeId, { host, port }])),
    topics: new Map(topics.map((topic) => [topic.name ?? "", topicOf(topic, shown)])),
  };
}

function topicOf({ name, errorCode, topicId, partitions }: MetadataAnswer["topics"][number], shown: string): Topic | Error {
  if (errorCode === codes.UNKNOWN_TOPIC_OR_PARTITION) return absent(shown, name ?? "");
  if (errorCode !== codes.NONE) return new KafkaRefusal(errorCode, `${shown}, topic ${name}`);
  const sorted = partitions.toSorted((a, b) => a.partitionIndex - b.partitionIndex);
  // A partition without a leader is told with an error of its own; that is for whoever needs the partition.
  return {
    name: name ?? "",
    id: topicId,
    partitions: sorted.map(({ leaderId, replicaNodes }) => ({ leader: leaderId, replicas: replicaNodes.length })),
  };
}

/** Tries again, for a while, whatever may be different a moment later; the last failure is the caller's. */
export async function persist<T>(link: Link, signal: AbortSignal, work: () => Promise<T>): Promise<T> {
  const until = link.clock.monotonic() + 2 * link.timeoutMs;
  for (let waitMs = 20; ; waitMs = Math.min(waitMs * 2, 500)) {
    try {
      return await work();
    } catch (error) {
      const passing = error instanceof KafkaRefusal && isPassing(error.kafkaCode);
      if (!passing || signal.aborted || link.clock.monotonic() > until) throw error;
      await link.clock.sleep(waitMs, signal);
    }
  }
}
