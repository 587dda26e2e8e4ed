import { absent } from "./codes.ts";
import { askAt, orStopped, type Link, type Topic } from "./link.ts";
import { readSettings, type Told } from "./settings.ts";

/** What the brokers said. */
export interface Answers {
  readonly topics: readonly TopicAnswers[];
  readonly broker: Told;
  /** The option of the same name. */
  readonly maxBytes: number;
}

export interface TopicAnswers {
  readonly name: string;
  /** Of the partition with the fewest replicas, or why the topic cannot be used. */
  readonly replicas: number | Error;
  readonly settings: Told;
}

interface Asked {
  readonly ofTopics: readonly string[];
  readonly ofBrokers: readonly string[];
}

export async function readAnswers(
  link: Link,
  topics: readonly string[],
  { ofTopics, ofBrokers }: Asked,
  signal: AbortSignal,
): Promise<Omit<Answers, "maxBytes">> {
  const { brokers, topics: found } = await link.look(topics, signal);
  const topicOf = (name: string): Topic | Error => found.get(name) ?? absent(link.shown, name);
  const there = topics.filter((name) => !(topicOf(name) instanceof Error));
  const settings = await orStopped(link, readSettings(await link.open(signal), "topic", there, ofTopics), signal);
  let broker: Told = {};
  // One broker stands for all: they should be set alike. A broker reports only its own settings.
  for (const [id, address] of [...brokers].slice(0, 1)) {
    const name = String(id);
    const told = await askAt(link, address, signal, (connection) => readSettings(connection, "broker", [name], ofBrokers));
    broker = told.get(name) ?? {};
  }
  return {
    topics: topics.map((name) => {
      const topic = topicOf(name);
      const replicas = topic instanceof Error ? topic : Math.min(...topic.partitions.map((partition) => partition.replicas));
      return { name, replicas, settings: settings.get(name) ?? {} };
    }),
    broker,
  };
}
