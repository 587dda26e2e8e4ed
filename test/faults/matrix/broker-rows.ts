import type { Channel } from "amqplib";
import { changeTopic } from "../../brokers/kafka-raw.ts";
import { raw as rawNats } from "../../brokers/nats.ts";
import { raw as rawRabbitmq, tapOf } from "../../brokers/rabbitmq.ts";
import type { RabbitmqServer } from "../../servers/rabbitmq.ts";
import { topicsOf } from "../../../src/cli/verify/ground.ts";
import { brokerPairs, only } from "./pairs.ts";
import { copiesOf, rounds } from "./rounds.ts";
import type { Row, Stage } from "./row.ts";

const both = ["up", "down"] as const;

/** While no relay publishes: between the first binding and the last, a message would reach some queues and not the others. */
function quietly(stage: Stage, work: (channel: Channel) => Promise<unknown>): Promise<void> {
  return rawRabbitmq(stage.broker.url, async (channel) => {
    for (const name of stage.names("relay")) stage.workers.freeze(name);
    await stage.clock.sleep(250);
    await work(channel);
    for (const name of stage.names("relay")) stage.workers.thaw(name);
  });
}

export const brokerRows: readonly Row[] = [
  {
    number: 4,
    title: "the broker is away for longer than any back-off",
    injected: "stopped in order for 7 s, scaled down from half an hour, and started again",
    pairs: brokerPairs,
    prepare: () => ({ forMs: 14_000 }),
    async inject(stage) {
      await stage.pause(2_000);
      const fault = stage.fault({ fault: "stopped", target: stage.pair.broker, copies: copiesOf(stage) });
      await stage.broker.server!.stop("fast");
      await stage.clock.sleep(7_000);
      await stage.broker.server!.start();
      fault.ended();
      stage.once();
    },
  },
  {
    number: 5,
    title: "the broker is killed and started again in the middle of batches",
    injected: "SIGKILL of all its processes, time after time",
    pairs: brokerPairs,
    prepare: () => ({ forMs: 12_000 }),
    inject: (stage) =>
      rounds(
        stage,
        "broker",
        "killed",
        async () => {
          await stage.broker.server!.kill9();
          await stage.clock.sleep(200);
          await stage.broker.server!.start();
        },
        1_800,
      ),
  },
  {
    number: 6,
    title: "the broker is silent, and its connections look alive",
    injected: "SIGSTOP of all its processes for 1.5 and 4 s",
    pairs: brokerPairs,
    prepare: () => ({ forMs: 14_000 }),
    inject: (stage) =>
      rounds(
        stage,
        "broker",
        "frozen",
        async (round) => {
          stage.broker.server!.freeze();
          await stage.clock.sleep(round % 2 === 0 ? 1_500 : 4_000);
          stage.broker.server!.thaw();
        },
        1_500,
      ),
  },
  {
    number: 7,
    title: "relays and subscribers cannot reach the broker; the database they can",
    injected: "a black hole between them, in both directions or one, for 1 to 3 s; what was on its way comes late, or never",
    pairs: brokerPairs,
    inject: (stage) =>
      rounds(stage, "broker", "black hole", async (round) => {
        for (const direction of round % 2 === 0 ? both : (["down"] as const)) stage.broker.link!.fault(direction, { hold: true });
        await stage.pause(1_000 + 1_000 * (round % 3));
        if (round % 2 === 0) stage.broker.link!.reset();
        stage.broker.link!.heal();
      }),
  },
  {
    number: 18,
    title: "an event is larger than the broker takes",
    injected: "the topics' max.message.bytes is lowered to 100 kB under load that has events of 256 KiB",
    pairs: brokerPairs.filter(only("kafka")),
    prepare: () => ({ load: { aggregates: 8, hot: 0.2, pauseMs: 12, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.05 } }),
    async inject(stage) {
      const topics = topicsOf(stage.place);
      const fault = stage.fault({ fault: "limit lowered", target: "kafka", copies: 0, scope: { topics } });
      for (const topic of topics) await changeTopic(stage.broker.url, topic, "max.message.bytes", "100000");
      await stage.rest();
      fault.ended();
      const { states } = await stage.ground.store.operator.status();
      stage.note(`DEAD ${states.DEAD}, BLOCKED ${states.BLOCKED} behind them`);
      if (states.DEAD > 0) stage.once();
    },
  },
  {
    number: 19,
    title: "no queue takes the message",
    injected: "every binding of a topic is taken away for 1.5 s, time after time",
    pairs: brokerPairs.filter(only("rabbitmq")),
    inject: (stage) =>
      rounds(stage, "broker", "unbound", async () => {
        const [topic] = topicsOf(stage.place);
        const queues = [tapOf(topic!), `shop.${topic}`, `reader.${topic}`];
        await quietly(stage, (channel) => Promise.all(queues.map((queue) => channel.unbindQueue(queue, stage.place.run, topic!))));
        await stage.pause(1_500);
        await quietly(stage, (channel) => Promise.all(queues.map((queue) => channel.bindQueue(queue, stage.place.run, topic!))));
      }),
  },
  {
    number: 20,
    title: "no stream takes the subject",
    injected: "the stream of a topic is given another subject for 1.5 s, time after time",
    pairs: brokerPairs.filter(only("nats")),
    inject: (stage) =>
      rounds(stage, "broker", "no stream", async () => {
        const [topic] = topicsOf(stage.place);
        await rawNats(stage.broker.url, async (_, manager) => {
          const name = await manager.streams.find(topic!);
          await manager.streams.update(name, { subjects: [`${topic}.elsewhere`] });
          await stage.pause(1_500);
          await manager.streams.update(name, { subjects: [topic!] });
        });
      }),
  },
  {
    number: 21,
    title: "the broker takes no messages because its memory is short",
    injected: "RabbitMQ's memory alarm for 3 s, time after time",
    pairs: brokerPairs.filter(only("rabbitmq")),
    prepare: () => ({ forMs: 14_000 }),
    inject: (stage) =>
      rounds(stage, "broker", "memory alarm", async () => {
        const server = stage.broker.server as RabbitmqServer;
        await server.control("set_vm_memory_high_watermark", "0.00001");
        await stage.clock.sleep(3_000);
        await server.control("set_vm_memory_high_watermark", "0.4");
      }),
  },
  {
    number: 22,
    title: "the consumer's queue is full, and refuses",
    injected: "a policy of 100 messages at most, while the subscribers stand still for 3 s",
    pairs: brokerPairs.filter(only("rabbitmq")),
    prepare: () => ({ forMs: 14_000 }),
    async inject(stage) {
      const server = stage.broker.server as RabbitmqServer;
      await server.control("set_policy", "full", "^shop\\.", '{"max-length":100}', "--apply-to", "queues");
      // A message that one queue refuses is in those that had room, and is published again: each refusal may leave a copy.
      for (let i = 0; i < 20; i++) stage.fault({ fault: `full ${i}`, target: "rabbitmq", copies: copiesOf(stage) }).ended();
      for (let round = 0; round < 2 && stage.on(); round++) {
        const fault = stage.fault({ fault: "full", target: "rabbitmq", copies: copiesOf(stage) });
        for (const name of stage.names("subscriber")) stage.workers.freeze(name);
        await stage.pause(3_000);
        for (const name of stage.names("subscriber")) stage.workers.thaw(name);
        fault.ended();
        stage.once();
        await stage.pause(2_000);
      }
      await server.control("clear_policy", "full");
    },
  },
];
