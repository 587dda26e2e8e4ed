import type { BrokerAdapter } from "../../contracts/adapter.ts";
import { systemClock as clock } from "../../core/clock.ts";
import { never } from "../../core/time.ts";
import { guardedBy, inStages, purgesItself } from "../kit/describe.ts";
import { rules } from "./examine.ts";
import { rabbitmq } from "./index.ts";
import { createLinks } from "./link.ts";
import { starter } from "./starter.ts";
import { removeTopology } from "./topology.ts";
import { settingsOf } from "./url.ts";

export const rabbitmqAdapter: BrokerAdapter = {
  name: "RabbitMQ",
  schemes: ["amqp", "amqps"],
  example: "amqp://user:password@host:5672/vhost",
  rules,
  starter,
  server: { port: 5672, ...guardedBy("amqps") },
  management: "RabbitMQ's management API, for settings that AMQP does not tell",
  open({ text }, { management }) {
    const broker = rabbitmq({ url: text, ...(management === undefined ? {} : { management }) });
    return {
      sink: broker,
      provision: (topics, consumers) => broker.provision(topics, consumers),
      purge: purgesItself("RabbitMQ keeps no message that every consumer has acknowledged"),
    };
  },
  openRun({ text }, run, { timeoutMs }) {
    // The run has an exchange of its own: a queue of the user may be bound to everything that goes through the usual one.
    const broker = rabbitmq({ url: text, exchange: run, timeoutMs });
    return {
      broker,
      provision: (topics, consumers) => broker.provision(topics, consumers),
      async remove(topics, consumers) {
        const links = createLinks({ settings: settingsOf(text), timeoutMs: 5_000, clock });
        // One after the other: RabbitMQ may answer INTERNAL_ERROR and end the connection when two channels delete the same thing at once.
        const stages = topics.flatMap((topic) => consumers.map((consumer) => ({ topic, consumer })));
        const removing = links.consuming
          .open(never)
          .then((link) => inStages(stages.map(({ topic, consumer }) => [() => removeTopology(link, run, [topic], [consumer])])));
        await removing.finally(() => links.close());
      },
    };
  },
};
