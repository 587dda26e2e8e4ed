import type { Finding, Rule, Say } from "../../contracts/doctor.ts";
import { pageOf } from "../../core/docs.ts";
import { applyRules } from "../../core/finding.ts";
import { inWords } from "../../core/in-words.ts";
import { readAnswers, type Answers, type TopicAnswers } from "./answers.ts";
import type { Link } from "./link.ts";
import type { Told } from "./settings.ts";

/** A setting of a topic or of a broker, by its name, and what its value means. */
interface Setting extends Omit<Rule<never>, "look"> {
  readonly look: (value: string, say: Say, maxBytes: number) => Finding;
}

const dayMs = 24 * 60 * 60 * 1_000;

const topicSettings: readonly Setting[] = [
  {
    setting: "min.insync.replicas",
    badWhen: "1, Kafka's default",
    breaks: "L",
    remedy: "give the topic 3 replicas, and set `min.insync.replicas=2`",
    look: (value, { good, bad }) =>
      Number(value) >= 2
        ? good(value, `A message counts as stored when ${value} brokers have it.`)
        : bad(value, "A message counts as stored when the leader alone has it, and may be lost with the leader"),
  },
  {
    setting: "unclean.leader.election.enable",
    badWhen: "`true`",
    breaks: "LO",
    remedy: "set it to `false`",
    look: (value, { good, bad }) =>
      value === "false"
        ? good(value, "Only a replica that has every stored message becomes the leader.")
        : bad(value, "A replica that lacks stored messages may become the leader, and they are gone"),
  },
  {
    setting: "cleanup.policy",
    badWhen: "`compact`, alone or with `delete`",
    breaks: "L",
    remedy: "set it to `delete`",
    look: (value, { good, bad }) =>
      value.split(",").includes("compact")
        ? bad(value, "Of each aggregate the newest event is kept, and those before it vanish, read or not")
        : good(value, "Events are kept until their time is over."),
  },
  {
    setting: "retention.ms",
    badWhen: "shorter than a day",
    breaks: "L",
    remedy: "set it to a week, `604800000`",
    look(value, { good, bad }) {
      const ms = Number(value);
      if (ms < 0) return good(value, "Events are kept for ever.");
      if (ms >= dayMs) return good(value, `Events are kept for ${inWords(ms)}; a subscriber that is away for longer misses some.`);
      return bad(value, `Events are kept for ${inWords(ms)}, and a subscriber that is away for longer misses them`);
    },
  },
  {
    setting: "retention.bytes",
    badWhen: "any limit",
    breaks: "L",
    remedy: "set it to `-1`",
    look: (value, { good, bad }) =>
      Number(value) < 0
        ? good(value, "A partition may grow as it needs to.")
        : bad(value, "What a partition holds beyond this goes, however new it is, read or not"),
  },
  {
    setting: "max.message.bytes",
    badWhen: "below the option `maxBytes`",
    breaks: "I",
    remedy: "raise it, or lower `maxBytes`",
    look: (value, { good, bad }, maxBytes) =>
      Number(value) >= maxBytes
        ? good(value, `It takes every message of up to maxBytes, ${maxBytes}.`)
        : bad(value, `A message larger than this is refused, though maxBytes allows ${maxBytes}, and its aggregate waits`),
  },
];

const brokerSettings: readonly Setting[] = [
  {
    setting: "auto.create.topics.enable",
    badWhen: "`true`, Kafka's default",
    breaks: "V",
    remedy: "set it to `false`; Waybill never creates a topic by publishing to it",
    look: (value, { good, bad }) =>
      value === "false"
        ? good(value, "Only topics that you create exist.")
        : bad(value, "A misspelled name silently creates a topic that no consumer reads"),
  },
];

type Looked = Pick<TopicAnswers, "replicas" | "settings"> & Pick<Answers, "maxBytes">;

/** The rule of a setting, which the broker may not report. It says nothing about a topic that is not there. */
const ruleOf = ({ look, ...row }: Setting): Rule<Looked> => ({
  ...row,
  look({ replicas, settings, maxBytes }, say) {
    if (replicas instanceof Error) return [];
    const value = told(settings, row.setting);
    if (value !== undefined) return look(value, say, maxBytes);
    const why = settings instanceof Error ? settings.message : "The broker does not tell";
    return say.unknown(null, `${why}: allow DescribeConfigs, or see that it is set as ${pageOf("kafka.md")} says.`);
  },
});
const told = (settings: Told, name: string): string | undefined => (settings instanceof Error ? undefined : settings[name]);

const topicRules: readonly Rule<Looked & { readonly name: string }>[] = [
  {
    setting: "topic",
    badWhen: "it is not there, or cannot be looked at",
    breaks: "L",
    remedy: "`waybill migrate --broker … --topics …`",
    look: ({ name, replicas }, say) =>
      replicas instanceof Error ? say.as(`topic ${name}`).bad(null, "Events for it wait", { remedy: replicas.message }) : [],
  },
  {
    setting: "replicas",
    badWhen: "1, or fewer than `min.insync.replicas`: then Kafka stores nothing, and events wait",
    breaks: "L",
    remedy: "give the topic 3 replicas",
    look({ replicas, settings }, { good, bad }) {
      if (replicas instanceof Error) return [];
      const [value, needed] = [String(replicas), Number(told(settings, "min.insync.replicas") ?? 1)];
      if (needed > replicas) return bad(value, `min.insync.replicas is ${needed}, so that nothing is stored and events wait`);
      if (replicas >= 2) return good(value, "A message outlives a broker that is lost.");
      return bad(value, "A message is lost with the disk of the one broker that has it");
    },
  },
  ...topicSettings.map(ruleOf),
];
const brokerRules = brokerSettings.map(ruleOf);

export const rules = [...topicRules, ...brokerRules];

/** Judges the settings of the topics and of the brokers. */
export async function examineKafka(
  link: Link,
  topics: readonly string[],
  maxBytes: number,
  signal: AbortSignal,
): Promise<readonly Finding[]> {
  const namesOf = (settings: readonly Setting[]): readonly string[] => settings.map(({ setting }) => setting);
  const asked = { ofTopics: namesOf(topicSettings), ofBrokers: namesOf(brokerSettings) };
  return judge({ ...(await readAnswers(link, topics, asked, signal)), maxBytes });
}

export const judge = ({ topics, broker, maxBytes }: Answers): readonly Finding[] => [
  ...topics.flatMap((topic) => applyRules(topicRules, { ...topic, maxBytes }, topic.name)),
  ...applyRules(brokerRules, { replicas: 0, settings: broker, maxBytes }),
];
