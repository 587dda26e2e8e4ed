import { WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";
import { absent, codes, KafkaRefusal } from "./codes.ts";
import type { Connection } from "./driver.ts";
import type { Link, Topic } from "./link.ts";
import { resources } from "./topics.ts";

/** What the brokers said. */
export interface Answers {
  readonly topics: readonly TopicAnswers[];
  readonly broker: Told;
  /** The option of the same name. */
  readonly maxBytes: number;
}

export interface TopicAnswers {
  readonly name: string;
  /** Of the partition that has the fewest; why the topic cannot be used instead. */
  readonly replicas: number | Error;
  readonly settings: Told;
}

/** Settings by their names, without those that were not told; the refusal where we may not ask. */
export type Told = Readonly<Record<string, string>> | KafkaRefusal;

export interface Asked {
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
  const ask = async (connection: Connection, type: number, names: readonly string[], keys: readonly string[]) => {
    if (names.length === 0) return new Map<string, Told>();
    const asked = names.map((name) => ({ resourceType: type, resourceName: name, configurationKeys: keys }));
    const { results } = await orAborted(connection.ask("describeConfigs", [asked, false, false]), signal, () => {
      throw new WaybillError("STOPPED", `${link.shown} was not waited for any longer`);
    });
    return new Map(results.map((result) => [result.resourceName, toldIn(result)]));
  };

  const settings = await ask(await link.open(signal), resources.topic, there, ofTopics);
  let broker: Told = {};
  // One for all: they should be alike. Each tells its own settings only.
  for (const [id, address] of [...brokers].slice(0, 1)) {
    const connection = await link.dial(address, signal);
    try {
      broker = (await ask(connection, resources.broker, [String(id)], ofBrokers)).get(String(id)) ?? {};
    } finally {
      connection.end(new WaybillError("STOPPED", `${link.shown} has been asked`));
    }
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

interface Result {
  readonly errorCode: number;
  readonly errorMessage: string | null;
  readonly configs: readonly { readonly name: string; readonly value: string | null }[];
}

function toldIn({ errorCode, errorMessage, configs }: Result): Told {
  if (errorCode !== codes.NONE) return new KafkaRefusal(errorCode, "This user may not ask", errorMessage);
  return Object.fromEntries(configs.flatMap(({ name, value }) => (value === null ? [] : [[name, value]])));
}
