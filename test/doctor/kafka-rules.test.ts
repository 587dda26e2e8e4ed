import { expect, test } from "vitest";
import { readAnswers, type Answers } from "../../src/brokers/kafka/answers.ts";
import { KafkaRefusal } from "../../src/brokers/kafka/codes.ts";
import { judge } from "../../src/brokers/kafka/examine.ts";
import type { Link } from "../../src/brokers/kafka/link.ts";
import { kafka } from "./recorded.ts";
import { suite, type Case } from "./suite.ts";

const topic = kafka.topics[0]!;
const topical = (settings: Readonly<Record<string, string>>, replicas = 3): Partial<Answers> => ({
  topics: [{ ...topic, replicas, settings: { ...(topic.settings as object), ...settings } }],
});
const onTopic = (what: string, letters: string): readonly string[] => [`${what} of order.events ${letters}`];
const lackedTopic = { name: "no.events", replicas: new Error("kafka://h has no topic"), settings: {} };

const ofKafka: readonly Case<Answers>[] = [
  ["a topic that is not there", { topics: [lackedTopic] }, ["topic no.events L"]],
  ["one replica", topical({ "min.insync.replicas": "1" }, 1), [...onTopic("replicas", "L"), ...onTopic("min.insync.replicas", "L")]],
  ["two replicas that must both have it", topical({}, 2), []],
  ["more replicas asked for than there are", topical({ "min.insync.replicas": "3" }, 2), onTopic("replicas", "L")],
  ["messages that the leader alone has", topical({ "min.insync.replicas": "1" }), onTopic("min.insync.replicas", "L")],
  ["leaders that lack messages", topical({ "unclean.leader.election.enable": "true" }), onTopic("unclean.leader.election.enable", "LO")],
  ["a topic that keeps the newest of a key", topical({ "cleanup.policy": "compact" }), onTopic("cleanup.policy", "L")],
  ["one that does both", topical({ "cleanup.policy": "compact,delete" }), onTopic("cleanup.policy", "L")],
  ["messages that stay for an hour", topical({ "retention.ms": "3600000" }), onTopic("retention.ms", "L")],
  ["messages that stay for a day", topical({ "retention.ms": "86400000" }), []],
  ["messages that stay for ever", topical({ "retention.ms": "-1" }), []],
  ["partitions that drop what is beyond a size", topical({ "retention.bytes": "1000000" }), onTopic("retention.bytes", "L")],
  ["small messages", topical({ "max.message.bytes": "1048575" }), onTopic("max.message.bytes", "I")],
  ["small messages, of which we send no larger ones", { ...topical({ "max.message.bytes": "20000" }), maxBytes: 20_000 }, []],
  ["topics that come into being by themselves", { broker: { "auto.create.topics.enable": "true" } }, ["auto.create.topics.enable V"]],
];

suite("Kafka", "Kafka", kafka, judge, ofKafka, { ...kafka, topics: [lackedTopic, topic] });

test("what we may not ask is unknown, and never good", () => {
  const refused = new KafkaRefusal(29, "This user may not ask");
  const unseen = judge({ ...kafka, topics: [{ ...topic, settings: refused }], broker: {} });
  expect(unseen.filter(({ verdict }) => verdict !== "unknown").map(({ setting }) => setting)).toEqual(["replicas of order.events"]);
  expect(unseen.find(({ setting }) => setting.startsWith("cleanup"))?.why).toMatch(/^This user may not ask: TOPIC_AUTHORIZATION_FAILED/);
});

test("a Kafka broker is asked for its own settings, and no other's", async () => {
  const asked: string[] = [];
  const connection = (name: string) => ({
    ask: (_: string, [resources]: [{ resourceName: string }[]]) => {
      asked.push(...resources.map(({ resourceName }) => `${name}: ${resourceName}`));
      return Promise.resolve({ results: [] });
    },
    end: () => asked.push(`${name}: ended`),
  });
  const brokers = new Map([1, 2].map((id) => [id, { host: `broker-${id}`, port: 9_092 }]));
  const link = {
    shown: "kafka://h",
    look: () => Promise.resolve({ brokers, topics: new Map([["t", { name: "t", id: "", partitions: [{ leader: 1, replicas: 2 }] }]]) }),
    open: () => Promise.resolve(connection("any")),
    dial: ({ host }: { host: string }) => Promise.resolve(connection(host)),
  } as unknown as Link;
  await readAnswers(link, ["t", "no.events"], { ofTopics: ["a"], ofBrokers: ["b"] }, new AbortController().signal);
  expect(asked).toEqual(["any: t", "broker-1: 1", "broker-1: ended"]);
});
