import { bad, good, unknown, type Finding } from "../../core/finding.ts";
import { inWords } from "../../core/in-words.ts";
import { readAnswers, type Answers, type Told } from "./answers.ts";
import type { Link } from "./link.ts";

type Judge = (setting: string, value: string, maxBytes: number) => Finding;

const dayMs = 24 * 60 * 60 * 1_000;

/** The settings of a topic that promises rest on, and what their values mean. */
export const topicSettings: Readonly<Record<string, Judge>> = {
  "min.insync.replicas": (setting, value) =>
    Number(value) >= 2
      ? good(setting, value, `A message counts as stored when ${value} brokers have it.`)
      : bad(
          setting,
          value,
          "L",
          "A message counts as stored when the leader alone has it, and may be lost with the leader: give the topic 3 replicas, and set min.insync.replicas=2.",
        ),
  "unclean.leader.election.enable": (setting, value) =>
    value === "false"
      ? good(setting, value, "Only a replica that has every stored message becomes the leader.")
      : bad(setting, value, "LO", "A replica that lacks stored messages may become the leader, and they are gone: set it to false."),
  "cleanup.policy": (setting, value) =>
    value.split(",").includes("compact")
      ? bad(setting, value, "L", "Of each aggregate the newest event is kept, and those before it vanish, read or not: set it to delete.")
      : good(setting, value, "Events are kept until their time is over."),
  "retention.ms": (setting, value) => {
    const ms = Number(value);
    if (ms < 0) return good(setting, value, "Events are kept for ever.");
    if (ms >= dayMs) return good(setting, value, `Events are kept for ${inWords(ms)}; a subscriber that is away for longer misses some.`);
    return bad(
      setting,
      value,
      "L",
      `Events are kept for ${inWords(ms)}, and a subscriber that is away for longer misses them: set it to a week, 604800000.`,
    );
  },
  "retention.bytes": (setting, value) =>
    Number(value) < 0
      ? good(setting, value, "A partition may grow as it needs to.")
      : bad(setting, value, "L", "What a partition holds beyond this goes, however new it is, read or not: set it to -1."),
  "max.message.bytes": (setting, value, maxBytes) =>
    Number(value) >= maxBytes
      ? good(setting, value, `It takes every message of up to maxBytes, ${maxBytes}.`)
      : bad(
          setting,
          value,
          "I",
          `A message larger than this is refused, though maxBytes allows ${maxBytes}, and its aggregate waits: raise one, or lower the other.`,
        ),
};

const brokerSettings: Readonly<Record<string, Judge>> = {
  "auto.create.topics.enable": (setting, value) =>
    value === "false"
      ? good(setting, value, "Only topics that you create exist.")
      : bad(
          setting,
          value,
          "V",
          "A misspelled name silently creates a topic that no consumer reads: set it to false. Waybill never creates a topic by publishing to it.",
        ),
};

/** What topics, and the brokers, are set to. */
export async function examineKafka(
  link: Link,
  topics: readonly string[],
  maxBytes: number,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const asked = { ofTopics: Object.keys(topicSettings), ofBrokers: Object.keys(brokerSettings) };
  return judge({ ...(await readAnswers(link, topics, asked, signal)), maxBytes });
}

export const judge = ({ topics, broker, maxBytes }: Answers): readonly Finding[] => [
  ...topics.flatMap(({ name, replicas, settings }) =>
    replicas instanceof Error
      ? [bad(`topic ${name}`, null, "L", `${replicas.message}. Events for it wait.`)]
      : [replication(name, replicas, settings), ...judgeAll(settings, topicSettings, ` of ${name}`, maxBytes)],
  ),
  ...judgeAll(broker, brokerSettings, "", maxBytes),
];

function replication(name: string, replicas: number, settings: Told): Finding {
  const [setting, value] = [`replicas of ${name}`, String(replicas)];
  const needed = settings instanceof Error ? 1 : Number(settings["min.insync.replicas"] ?? 1);
  if (needed > replicas)
    return bad(
      setting,
      value,
      "L",
      `min.insync.replicas is ${needed}, so that nothing is stored and events wait: give the topic 3 replicas.`,
    );
  if (replicas >= 2) return good(setting, value, "A message outlives a broker that is lost.");
  return bad(setting, value, "L", "A message is lost with the disk of the one broker that has it: give the topic 3 replicas.");
}

function judgeAll(told: Told, rules: Readonly<Record<string, Judge>>, of: string, maxBytes: number): readonly Finding[] {
  return Object.entries(rules).map(([name, rule]) => {
    const value = told instanceof Error ? undefined : told[name];
    if (value !== undefined) return rule(name + of, value, maxBytes);
    const why = told instanceof Error ? told.message : "The broker does not tell";
    return unknown(name + of, null, `${why}: allow DescribeConfigs, or see that it is set as docs/kafka.md says.`);
  });
}
