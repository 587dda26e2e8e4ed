import { WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";
import { absent, codes, KafkaRefusal, succeed } from "./codes.ts";
import type { Connection } from "./driver.ts";
import { grouped } from "./grouped.ts";
import { persist, type Link } from "./link.ts";
import type { ListedPartition } from "./wire.ts";

/** In the place of a time, in listOffsets. */
const [latest, earliest, anyTime] = [-1n, -2n, 0n];
/** Of what is not committed too: once it is, it may be delivered. */
const all = 0;

/** When the first record of the topic's partitions was written, as Kafka knows it; null where all of them are empty. */
export async function oldestOf(link: Link, name: string, signal: AbortSignal): Promise<Date | null> {
  const times = await persist(link, signal, () => readTimes(link, name, signal));
  return times.length === 0 ? null : new Date(Math.min(...times));
}

async function readTimes(link: Link, name: string, signal: AbortSignal): Promise<readonly number[]> {
  const { topics, brokers } = await link.look([name], signal);
  const topic = topics.get(name) ?? absent(link.shown, name);
  if (topic instanceof Error) throw topic;
  const led = topic.partitions.map(({ leader }, index) => ({ leader, index }));
  const times: number[] = [];
  for (const [leader, own] of grouped(led, (partition) => String(partition.leader))) {
    const address = brokers.get(Number(leader));
    if (address === undefined) throw new KafkaRefusal(codes.LEADER_NOT_AVAILABLE, `${link.shown}, topic ${name}`);
    const connection = await link.dial(address, signal);
    try {
      const indexes = own.map(({ index }) => index);
      times.push(...(await timesAt({ link, connection, name, indexes }, signal)));
    } finally {
      connection.end(new WaybillError("STOPPED", `${link.shown} has been asked`));
    }
  }
  return times;
}

interface Asked {
  readonly link: Link;
  readonly connection: Connection;
  readonly name: string;
  readonly indexes: readonly number[];
}

/** Of each partition that has records, the time of its first; 0 where that has none, or where the broker does not find it. */
async function timesAt({ link, connection, name, indexes }: Asked, signal: AbortSignal): Promise<readonly number[]> {
  const ask = async (timestamp: bigint): Promise<ReadonlyMap<number, ListedPartition>> => {
    const partitions = indexes.map((partitionIndex) => ({ partitionIndex, currentLeaderEpoch: -1, timestamp }));
    const answer = await orAborted(connection.ask("listOffsets", [-1, all, [{ name, partitions }]]), signal, () => {
      throw new WaybillError("STOPPED", `${link.shown} was not waited for any longer`);
    });
    return new Map(answer.topics.flatMap((topic) => topic.partitions).map((found) => [found.partitionIndex, found]));
  };
  // In this order: what retention removes in between makes the answer too old, and never too young.
  const [timed, first, end] = [await ask(anyTime), await ask(earliest), await ask(latest)];
  return indexes.flatMap((index) => {
    const [at, from, to] = [timed, first, end].map((answers) => {
      const found = answers.get(index);
      succeed(found?.errorCode ?? codes.UNKNOWN_TOPIC_OR_PARTITION, `${link.shown}, partition ${index} of ${name}`);
      return found!;
    }) as [ListedPartition, ListedPartition, ListedPartition];
    if (from.offset >= to.offset) return [];
    return at.offset < 0n || at.offset > from.offset ? [0] : [Number(at.timestamp)];
  });
}
