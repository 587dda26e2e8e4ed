import type { BrokerAdapter } from "../../contracts/adapter.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { guardedBy, inStages, purgesItself } from "../kit/describe.ts";
import { rules } from "./examine.ts";
import { removeGroup } from "./reading/groups.ts";
import { kafka } from "./index.ts";
import { createLink } from "./link.ts";
import { starter } from "./starter.ts";
import { removeTopics } from "./topics.ts";
import { settingsOf } from "./url.ts";

const never = new AbortController().signal;
/** A group exists until its members' sessions expire. A member that was killed while joining leaves after that round. */
const groupsMs = 30_000;
const { remedy, guard } = guardedBy("kafkas");

export const kafkaAdapter: BrokerAdapter = {
  name: "Kafka",
  schemes: ["kafka", "kafkas"],
  example: "kafka://host:9092,host2:9092",
  server: {
    port: "Kafka tells its clients where its brokers are, past any network in between",
    remedy,
    guard: (url, env) => (/\?(?:[^#]*&)?tls=true(&|#|$)/.test(url) ? "verified" : guard(url, env)),
  },
  rules,
  starter,
  open({ text }) {
    const broker = kafka({ url: text });
    return {
      sink: broker,
      provision: (topics) => broker.provision(topics),
      purge: purgesItself("a Kafka topic deletes by its own limits: set retention.ms on the topic"),
    };
  },
  openRun({ text }, _, pace) {
    const broker = kafka({ url: text, ...pace });
    return {
      broker,
      // A group waits for more members before it begins.
      slow: true,
      provision: (topics) => broker.provision(topics),
      async remove(topics, consumers) {
        const link = createLink({ settings: settingsOf(text), clock, timeoutMs: 5_000 });
        const groups = consumers.map((consumer) => () => removeGroup(link, consumer, groupsMs));
        // Groups are there whether or not their topics are.
        await inStages([topics.map((topic) => () => removeTopics(link, [topic], never)), groups]).finally(() => link.close());
      },
    };
  },
};
