import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { endingWith, oneConnection } from "../kit/link.ts";
import { orAborted, persist as persistently, shared } from "../../core/time.ts";
import { absent, codeOf, codes, isPassing, KafkaRefusal, succeed, wrongAnswer } from "./codes.ts";
import { connect, type AnswerOf, type Connection } from "./driver.ts";
import { written, type Address } from "../kit/url.ts";
import type { Settings } from "./url.ts";

export interface Topic {
  readonly name: string;
  readonly id: string;
  /** Indexed by partition number. */
  readonly partitions: readonly { readonly leader: number; readonly replicas: number }[];
}

/** What the brokers say of themselves and of topics. */
interface Cluster {
  readonly brokers: ReadonlyMap<number, Address>;
  readonly topics: ReadonlyMap<string, Topic | Error>;
}

export interface Link {
  /** A connection to any broker, for requests that every broker can answer. It is reopened whenever it has been lost. */
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

interface LinkOptions {
  readonly settings: Settings;
  readonly clock: Clock;
  readonly timeoutMs: number;
}

export function createLink({ settings, clock, timeoutMs }: LinkOptions): Link {
  const { shown } = settings;
  const closing = shared(new AbortController());
  let known: readonly Address[] = [];
  /** Where the last connection led. */
  let last = "";

  const dial: Link["dial"] = (address, outer) =>
    endingWith(shown, [outer, closing.signal], (signal) => connect({ address, settings, clock, timeoutMs }, signal));

  /**
   * The first broker that answers: those of the URL, then those that the last metadata named, in turn. It begins behind the one whose
   * connection has ended: a frozen broker takes connections, and each would cost a time-out.
   */
  const dialAny = async (): Promise<Connection> => {
    const all = [...new Map([...settings.addresses, ...known].map((address) => [written(address), address]))];
    const next = all.findIndex(([name]) => name === last) + 1;
    let first: unknown = null;
    for (const [name, address] of [...all.slice(next), ...all.slice(0, next)]) {
      try {
        const connection = await dial(address, closing.signal);
        last = name;
        return connection;
      } catch (error) {
        first ??= error;
      }
    }
    throw first;
  };

  const { open } = oneConnection(shown, dialAny);

  return {
    ...{ shown, clock, timeoutMs, open, dial, closing: closing.signal },
    async look(topics, signal) {
      const answer = await orStopped({ shown }, (await open(signal)).ask("metadata", [topics, false]), signal);
      const cluster = clusterOf(answer, shown);
      known = [...cluster.brokers.values()];
      return cluster;
    },
    async coordinator(kind, key, signal) {
      const asked = (await open(signal)).ask("findCoordinator", [kind === "group" ? 0 : 1, [key]]);
      const [found] = (await orStopped({ shown }, asked, signal)).coordinators;
      succeed(found?.errorCode ?? codes.COORDINATOR_NOT_AVAILABLE, `${shown}, coordinator of the ${kind} ${key}`);
      return addressIn(found!, shown, "findCoordinator");
    },
    close: () => closing.abort(),
  };
}

function clusterOf({ brokers, topics }: AnswerOf<"metadata">, shown: string): Cluster {
  return {
    brokers: new Map(brokers.map((broker) => [broker.nodeId, addressIn(broker, shown, "metadata")])),
    topics: new Map(topics.map((topic) => [topic.name ?? "", topicOf(topic, shown)])),
  };
}

function addressIn({ host, port }: Address, shown: string, request: string): Address {
  if (host === "" || port < 1 || port > 65_535) throw wrongAnswer(shown, request);
  return { host, port };
}

function topicOf({ name, errorCode, topicId, partitions }: AnswerOf<"metadata">["topics"][number], shown: string): Topic | Error {
  if (errorCode === codes.UNKNOWN_TOPIC_OR_PARTITION) return absent(shown, name ?? "");
  if (errorCode !== codes.NONE) return new KafkaRefusal(errorCode, `${shown}, topic ${name}`);
  const sorted = partitions.toSorted((a, b) => a.partitionIndex - b.partitionIndex);
  // They are told by their places: one that is missing would shift all behind it.
  if (sorted.length === 0 || sorted.some(({ partitionIndex }, place) => partitionIndex !== place)) throw wrongAnswer(shown, "metadata");
  // The broker reports a partition without a leader with an error of its own. Callers that need the partition deal with it.
  return {
    name: name ?? "",
    id: topicId,
    partitions: sorted.map(({ leaderId, replicaNodes }) => ({ leader: leaderId, replicas: replicaNodes.length })),
  };
}

/** Rejects as soon as the signal aborts, whatever becomes of the work. */
export const orStopped = <T>({ shown }: Pick<Link, "shown">, work: Promise<T>, signal: AbortSignal): Promise<T> =>
  orAborted(work, signal, () => {
    throw new WaybillError("STOPPED", `${shown} was not waited for any longer`);
  });

/** On a connection of its own, which ends with the work. */
export async function askAt<T>(
  link: Link,
  address: Address,
  signal: AbortSignal,
  work: (connection: Connection) => Promise<T>,
): Promise<T> {
  const connection = await link.dial(address, signal);
  try {
    return await orStopped(link, work(connection), signal);
  } finally {
    connection.end(new WaybillError("STOPPED", `${link.shown} has been asked`));
  }
}

interface Patience {
  /** @default twice as long as one answer may take */
  readonly forMs?: number;
  /** One more code that is retried. */
  readonly also?: number;
}

/** Retries, for a while, failures that may pass within a moment. The caller gets any other failure, and the last one. */
export function persist<T>(link: Link, signal: AbortSignal, work: () => Promise<T>, patience: Patience = {}): Promise<T> {
  const { clock } = link;
  const until = clock.monotonic() + (patience.forMs ?? 2 * link.timeoutMs);
  return persistently(work, (error, tried) => {
    const code = codeOf(error);
    const passes = code !== null && (isPassing(code) || code === patience.also);
    return passes && !signal.aborted && clock.monotonic() <= until ? clock.sleep(Math.min(10 * 2 ** tried, 500), signal) : null;
  });
}
