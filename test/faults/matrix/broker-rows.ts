import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { Channel } from "amqplib";
import { changeTopic } from "../../brokers/kafka-raw.ts";
import { raw as rawNats } from "../../brokers/nats.ts";
import { raw as rawRabbitmq, tapOf } from "../../brokers/rabbitmq.ts";
import { respAt } from "../../support/resp.ts";
import type { RabbitmqServer } from "../../servers/rabbitmq.ts";
import { consumersOf, readerOf, topicsOf } from "../../../src/proof/run/ground.ts";
import { readHistory } from "../../../src/proof/judge/history.ts";
import { fewLines, publishFelt } from "./felt.ts";
import { brokerPairs } from "./pairs.ts";
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

/** Resolves to what makes the limit as it was. */
async function lowerLimit(stage: Stage): Promise<() => Promise<void>> {
  const topics = topicsOf(stage.place);
  const [topic] = topics as [string];
  if (stage.pair.broker === "rabbitmq") {
    const server = stage.broker.server as RabbitmqServer;
    const setLimit = (most: number): Promise<string> => server.control("eval", `application:set_env(rabbit, max_message_size, ${most}).`);
    const before = Number(await server.control("eval", "element(2, application:get_env(rabbit, max_message_size))."));
    // A channel ends with a message that is too large; what else was on it may be there, and is sent again.
    const ends = (): number => server.log().split("precondition_failed: message size").length - 1;
    const endsBefore = ends();
    const common = { target: "rabbitmq", scope: { topics } } as const;
    // Channels keep the limit that they were opened under: both times the links are reset, which every relay feels.
    const lowered = stage.fault({ ...common, fault: "limit lowered", copies: copiesOf(stage) });
    await setLimit(limit);
    stage.broker.link!.reset();
    return async () => {
      const lifted = stage.fault({ ...common, fault: "limit lifted", copies: copiesOf(stage) });
      await setLimit(before);
      stage.broker.link!.reset();
      const times = ends() - endsBefore;
      for (let nth = 1; nth <= times; nth++) stage.fault({ ...common, fault: `channel ended ${nth}`, copies: stage.window }).ended();
      stage.note(`${times} channels ended with a message that was too large`);
      lifted.ended();
      lowered.ended();
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

/** Resolves to what leads messages to it again. */
async function moveStream({ pair, broker: { url } }: Stage, topic: string): Promise<() => Promise<unknown>> {
  const elsewhere = `${topic}.elsewhere`;
  if (pair.broker === "redis") {
    await respAt(url, ["RENAMENX", topic, elsewhere]);
    return async () => {
      const [moved] = await respAt(url, ["RENAMENX", elsewhere, topic]);
      if (moved !== 1) throw new Error(`somebody has made the stream ${topic} anew`);
    };
  }
  const give = (subject: string): Promise<void> =>
    rawNats(url, async (_, { streams }) => {
      const name = await streams.find(subject === topic ? elsewhere : topic);
      await streams.update(name, { subjects: [subject] });
    });
  await give(elsewhere);
  return () => give(topic);
}

/** Resolves to what gives it back. */
async function shortOfMemory(stage: Stage): Promise<() => Promise<unknown>> {
  if (stage.pair.broker === "rabbitmq") {
    const server = stage.broker.server as RabbitmqServer;
    await server.control("set_vm_memory_high_watermark", "0.00001");
    return () => server.control("set_vm_memory_high_watermark", "0.4");
  }
  const { url } = stage.broker;
  const [policy, most] = await respAt(url, ["CONFIG", "GET", "maxmemory-policy"], ["CONFIG", "GET", "maxmemory"]);
  const [, before] = most as readonly [string, string];
  if (String(policy) !== "maxmemory-policy,noeviction") throw new Error(`this Redis would evict messages: ${String(policy)}`);
  await respAt(url, ["CONFIG", "SET", "maxmemory", "1"]);
  return () => respAt(url, ["CONFIG", "SET", "maxmemory", before]);
}

const room = 20;

/** A stream keeps what has been read: it is full when so many more have come. */
function fillStream(stage: Stage): Promise<void> {
  const [topic] = topicsOf(stage.place) as [string];
  const full = (): Promise<void> =>
    rawNats(stage.broker.url, async (_, manager) => {
      const { config, state } = await manager.streams.info(await manager.streams.find(topic));
      if (config.discard !== "new") throw new Error(`the stream ${config.name} would drop its oldest messages`);
      await manager.streams.update(config.name, { max_msgs: state.messages + room });
      await stage.clock.sleep(3_000);
      await manager.streams.update(config.name, { max_msgs: config.max_msgs });
    });
  return rounds(stage, "broker", "full", full, { scope: { topics: [topic] } });
}

async function fillQueues(stage: Stage): Promise<void> {
  const server = stage.broker.server as RabbitmqServer;
  await server.control("set_policy", "full", `^${consumersOf(stage.place)[0]}\\.`, '{"max-length":20}', "--apply-to", "queues");
  let subscribers = stage.names("subscriber");
  for (let round = 0; round < 2 && stage.on(); round++) {
    const fault = stage.fault({ fault: "full", target: "rabbitmq", copies: 1 }); // what is refused besides is known at the end
    // One that only stands still has the server send it more than the queue may hold.
    for (const name of subscribers) await stage.workers.drain(name, 10_000);
    await stage.clock.sleep(3_000);
    subscribers = subscribers.map((_, i) => `subscriber-${round + 1}-${i + 1}`);
    for (const [i, name] of subscribers.entries()) await stage.add(name, stage.dutyOf("subscriber", i + 1));
    fault.ended();
    stage.once();
    await stage.pause(2_000);
  }
  await server.control("clear_policy", "full");
  await stage.clock.sleep(500);
  const refusals = refusalsIn(stage);
  for (const [nth, copies] of refusals.entries()) stage.fault({ fault: `refused ${nth}`, target: "rabbitmq", copies }).ended();
  stage.note(`${refusals.length} publishes were refused, of ${refusals.reduce((sum, events) => sum + events, 0)} events`);
}

export const brokerRows: readonly Row[] = [
  {
    number: 4,
    title: "the broker is away for longer than any back-off",
    injected: "stopped in order for 7 s, scaled down from half an hour, and started again",
    pairs: brokerPairs,
    prepare: () => ({ forMs: 14_000 }),
    felt: fewLines,
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
    felt: publishFelt,
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
    felt: publishFelt,
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
    felt: publishFelt,
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
      const look = async () => (await stage.ground.store.operator.status()).states;
      let states = await look();
      // A slow machine takes its time until one has been found to be too large.
      for (let more = 0; more < 15 && states.DEAD === 0 && !stage.signal.aborted; more++, states = await look())
        await stage.clock.sleep(1_000);
      await ended();
      stage.note(`DEAD ${states.DEAD}, BLOCKED ${states.BLOCKED} behind them`);
      if (states.DEAD > 0) stage.once();
    },
  },
  {
    number: 19,
    title: "no queue takes the message",
    injected: "every binding of one topic of two is taken away for 1.5 s, time after time",
    pairs: brokerPairs,
    cannot: {
      kafka: "a topic of Kafka keeps every message itself: nothing has to be bound to it",
      nats: "JetStream's is row 20, a subject that no stream takes",
      redis: "a stream of Redis keeps every message itself: nothing has to be bound to it",
    },
    felt: publishFelt,
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
    title: "no stream takes the subject, or has the name",
    injected: "the stream of one topic of two is given another subject, and on Redis another name, for 1.5 s, time after time",
    pairs: brokerPairs,
    cannot: {
      kafka: "a topic of Kafka has no subjects to lose: it can only be deleted, with all that is in it",
      rabbitmq: "RabbitMQ's is row 19, a message that no queue takes",
    },
    felt: publishFelt,
    inject(stage) {
      const [topic] = topicsOf(stage.place) as [string];
      const elsewhere = async (): Promise<void> => {
        const back = await moveStream(stage, topic);
        await stage.pause(1_500);
        await back();
      };
      return rounds(stage, "broker", "no stream", elsewhere, { scope: { topics: [topic] } });
    },
  },
  {
    number: 21,
    title: "the broker takes no messages because its memory is short",
    injected: "for 3 s, time after time: RabbitMQ's memory alarm, and a maxmemory of one byte on Redis, which evicts nothing",
    pairs: brokerPairs,
    cannot: {
      kafka: "Kafka has no limit of memory at which it refuses messages: they go to its files",
      nats: "JetStream's limit of memory is for streams in memory, and Waybill's are in files",
    },
    prepare: () => ({ forMs: 14_000 }),
    felt: publishFelt,
    inject: (stage) =>
      rounds(stage, "broker", "memory short", async () => {
        const whole = await shortOfMemory(stage);
        await stage.clock.sleep(3_000);
        await whole();
      }),
  },
  {
    number: 22,
    title: "the consumer's queue, or the stream, is full and refuses",
    injected:
      "RabbitMQ: a policy of 20 messages at most, while no subscriber is there for 3 s; JetStream: max_msgs of the stream of one topic of two, 20 more than it has, for 3 s; time after time",
    pairs: brokerPairs,
    cannot: {
      kafka: "a topic of Kafka never refuses for being full: it deletes the oldest, and a full disk is row 24",
      redis: "a stream of Redis has no length at which it refuses: memory is its only limit, which is row 21",
    },
    prepare: () => ({ forMs: 14_000 }),
    felt: publishFelt,
    inject: (stage) => (stage.pair.broker === "nats" ? fillStream(stage) : fillQueues(stage)),
  },
];

/**
 * A message that one queue refuses is in those that had room, and is published again: each refusal may leave a copy of each of its events.
 * How many events each has had, as relays wrote it down.
 */
function refusalsIn({ folder }: Stage): readonly number[] {
  const files = readdirSync(folder).filter((name) => name.startsWith("relay") && name.endsWith(".jsonl"));
  const history = readHistory(files.map((name) => ({ name, text: readFileSync(join(folder, name), "utf8") })));
  return history.flatMap((entry) => (entry.op === "publish" && entry.phase === "failed" ? [entry.events.length] : []));
}
