import { mkdtempSync, rmSync } from "node:fs";
import { connect as connectTo } from "node:net";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect as connectNats } from "@nats-io/transport-node";
import { connect as connectAmqp } from "amqplib";
import { Redis } from "ioredis";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { nats } from "../../src/brokers/nats/index.ts";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { redis } from "../../src/brokers/redis/index.ts";
import type { Sink } from "../../src/contracts/sink.ts";
import type { Source } from "../../src/contracts/source.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { startKafka } from "../servers/kafka.ts";
import { startNats } from "../servers/nats.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { startRedis } from "../servers/redis.ts";
import { publishAmqp } from "./raw-amqp.ts";
import { publishKafka } from "./raw-kafka.ts";
import { publishNats } from "./raw-nats.ts";
import type { BrokerName, Message } from "./messages.ts";

export type Opened = Sink & Source & { provision(topics: readonly string[], consumers?: readonly string[]): Promise<void> };

/** A broker, and a way to write to it that knows nothing of our rules. */
export interface Place extends AsyncDisposable {
  open(): Opened;
  /** Rejects when the broker refuses the message. */
  publish(topic: string, message: Message): Promise<void>;
  /** How many messages a consumer that has left has not acknowledged; null where that cannot be asked for. */
  left(topic: string, consumer: string): Promise<number | null>;
}

export const openPlaces: Readonly<Record<BrokerName, () => Promise<Place>>> = {
  async embedded() {
    const folder = mkdtempSync(join(tmpdir(), "waybill-fuzz-"));
    const path = join(folder, "broker.db");
    const db = (await defaultDriver())(path);
    db.exec("PRAGMA busy_timeout = 5000");
    return {
      open: () => embedded({ path }),
      async publish(topic, { attributes, headers, data, raw }) {
        const texts = [
          raw === null ? JSON.stringify(Object.fromEntries(attributes)) : raw.bytes.toString(),
          JSON.stringify(Object.fromEntries(headers)),
        ];
        db.prepare('INSERT INTO waybill_broker_messages (topic, "key", attributes, headers, data) VALUES (?, ?, ?, ?, ?)').run(
          ...[topic, attributes.find(([name]) => name === "partitionkey")?.[1] ?? "", ...texts, data ?? Buffer.alloc(0)],
        );
      },
      async left(topic, consumer) {
        const [row] = db
          .prepare(
            `SELECT count(*) AS n FROM waybill_broker_messages m WHERE m.topic = ?
             AND m."offset" > coalesce((SELECT c."offset" FROM waybill_broker_consumers c WHERE c.topic = m.topic AND c.consumer = ?), 0)`,
          )
          .all(topic, consumer) as { n: number }[];
        return Number(row!.n);
      },
      async [Symbol.asyncDispose]() {
        db.close();
        rmSync(folder, { recursive: true, force: true });
      },
    };
  },

  async nats() {
    const server = await startNats();
    const nc = await connectNats({ servers: `127.0.0.1:${server.port}`, maxReconnectAttempts: -1 });
    const manager = await jetstreamManager(nc);
    return {
      open: () => nats({ url: server.url() }),
      publish: (topic, message) => publishNats(() => connectTo(server.port, "127.0.0.1"), topic, message),
      async left(topic) {
        let sum = 0;
        for await (const info of manager.consumers.list(await manager.streams.find(topic))) sum += info.num_pending + info.num_ack_pending;
        return sum;
      },
      async [Symbol.asyncDispose]() {
        await nc.close();
        await server[Symbol.asyncDispose]();
      },
    };
  },

  async rabbitmq() {
    const server = await startRabbitmq();
    return {
      open: () => rabbitmq({ url: server.url() }),
      async publish(topic, message) {
        const connection = await connectAmqp(server.url());
        connection.on("error", () => undefined);
        try {
          await publishAmqp(connection, topic, message);
        } finally {
          await connection.close().catch(() => undefined);
        }
      },
      async left(topic, consumer) {
        const connection = await connectAmqp(server.url());
        try {
          return (await (await connection.createChannel()).checkQueue(`${consumer}.${topic}`)).messageCount;
        } finally {
          await connection.close().catch(() => undefined);
        }
      },
      [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
    };
  },

  async redis() {
    const server = await startRedis();
    const client = new Redis(server.port, "127.0.0.1");
    return {
      open: () => redis({ url: server.url() }),
      async publish(topic, { attributes, headers, data, raw }) {
        const fields =
          raw === null ? fieldsOf({ attributes, headers, data }) : [raw.bytes, raw.bytes, Buffer.from([255]), Buffer.from("x")];
        await client.call("XADD", topic, "*", ...fields);
      },
      async left(topic, consumer) {
        const groups = (await client.call("XINFO", "GROUPS", topic)) as (readonly (string | number | null)[])[];
        const group = groups.find((each) => each.includes(consumer)) ?? [];
        const of = (name: string): number => Number(group[group.indexOf(name) + 1] ?? 0);
        return of("pending") + of("lag");
      },
      async [Symbol.asyncDispose]() {
        client.disconnect();
        await server[Symbol.asyncDispose]();
      },
    };
  },

  async kafka() {
    const server = await startKafka();
    return {
      open: () => kafka({ url: server.url(), partitions: 1, sessionMs: 6_000 }),
      publish: (topic, message) => publishKafka({ host: "127.0.0.1", port: server.port }, topic, message),
      left: async () => null,
      [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
    };
  },
};

const fieldsOf = ({ attributes, headers, data }: Pick<Message, "attributes" | "headers" | "data">): (string | Buffer)[] => [
  ...attributes.flatMap(([name, value]) => [name === "datacontenttype" ? "content-type" : `ce_${name}`, value]),
  ...headers.flatMap(([name, value]) => [`h_${name}`, value]),
  ...(data === null ? [] : ["data", data]),
];
