import type { Channel } from "amqplib";
import { changeTopic } from "../../brokers/kafka-raw.ts";
import { raw as rawNats } from "../../brokers/nats.ts";
import { raw as rawRabbitmq, tapOf } from "../../brokers/rabbitmq.ts";
import type { RabbitmqServer } from "../../servers/rabbitmq.ts";
import { consumersOf, readerOf, topicsOf } from "../../../src/cli/verify/ground.ts";
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

const limit = 100_000;
/** A channel ends with a message that is too large; what else was on it may be there, and is sent again. */
const endedChannels = 40;

/** Resolves to what makes the limit as it was. */
async function lowerLimit(stage: Stage): Promise<() => Promise<void>> {
  const topics = topicsOf(stage.place);
  const [topic] = topics as [string];
  if (stage.pair.broker === "rabbitmq") {
    const server = stage.broker.server as RabbitmqServer;
    const setLimit = (most: number): Promise<string> => server.control("eval", `application:set_env(rabbit, max_message_size, ${most}).`);
    const before = Number(await server.control("eval", "element(2, application:get_env(rabbit, max_message_size))."));
    const faults = Array.from({ length: endedChannels }, (_, i) =>
      stage.fault({ fault: `limit lowered ${i}`, target: "rabbitmq", copies: copiesOf(stage), scope: { topics } }),
    );
    await setLimit(limit);
    stage.broker.link!.reset();
    return async () => {
      await setLimit(before);
      for (const fault of faults) fault.ended();
    };
  }
  const fault = stage.fault({ fault: "limit lowered", target: topic, copies: 0, scope: { topics: [topic] } });
  if (stage.pair.broker === "kafka") await changeTopic(stage.broker.url, topic, "max.message.bytes", String(limit));
  else
    await rawNats(stage.broker.url, async (_, manager) => {
      await manager.streams.update(await manager.streams.find(topic), { max_msg_size: limit });
    });
  return async () => fault.ended();
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
        { calmMs: 1_800 },
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
        { calmMs: 1_500 },
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
    injected:
      "the limit is lowered to 100 kB under load that has events of 256 KiB: of one topic on Kafka (max.message.bytes) and NATS (max_msg_size), of the whole server on RabbitMQ (max_message_size), for channels that are opened from then on",
    pairs: brokerPairs,
    cannot: {
      redis: "Redis refuses nothing below proto-max-bulk-len, which is 1 MiB at least, and an event has 256 KiB at most",
    },
    prepare: () => ({ load: { aggregates: 8, hot: 0.2, pauseMs: 12, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.05 } }),
    async inject(stage) {
      const ended = await lowerLimit(stage);
      await stage.rest();
      const { states } = await stage.ground.store.operator.status();
      await ended();
      stage.note(`DEAD ${states.DEAD}, BLOCKED ${states.BLOCKED} behind them`);
      if (states.DEAD > 0) stage.once();
    },
  },
  {
    number: 19,
    title: "no queue takes the message",
    injected: "every binding of one topic of two is taken away for 1.5 s, time after time",
    pairs: brokerPairs.filter(only("rabbitmq")),
    inject(stage) {
      const [topic] = topicsOf(stage.place) as [string];
      const queues = [tapOf(topic), ...[...consumersOf(stage.place), readerOf(topic)].map((consumer) => `${consumer}.${topic}`)];
      const unbound = async (): Promise<void> => {
        await quietly(stage, (channel) => Promise.all(queues.map((queue) => channel.unbindQueue(queue, stage.place.run, topic))));
        await stage.pause(1_500);
        await quietly(stage, (channel) => Promise.all(queues.map((queue) => channel.bindQueue(queue, stage.place.run, topic))));
      };
      return rounds(stage, "broker", "unbound", unbound, { scope: { topics: [topic] } });
    },
  },
  {
    number: 20,
    title: "no stream takes the subject",
    injected: "the stream of one topic of two is given another subject for 1.5 s, time after time",
    pairs: brokerPairs.filter(only("nats")),
    inject(stage) {
      const [topic] = topicsOf(stage.place) as [string];
      const elsewhere = (): Promise<void> =>
        rawNats(stage.broker.url, async (_, manager) => {
          const name = await manager.streams.find(topic);
          await manager.streams.update(name, { subjects: [`${topic}.elsewhere`] });
          await stage.pause(1_500);
          await manager.streams.update(name, { subjects: [topic] });
        });
      return rounds(stage, "broker", "no stream", elsewhere, { scope: { topics: [topic] } });
    },
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
      await server.control("set_policy", "full", `^${consumersOf(stage.place)[0]}\\.`, '{"max-length":100}', "--apply-to", "queues");
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
