import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import Database from "libsql";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { sql } from "../brokers/files.ts";
import { subject as kafka } from "../brokers/kafka.ts";
import type { Broker, BrokerServer, Subject } from "../brokers/kit/subject.ts";
import { subject as nats } from "../brokers/nats.ts";
import { subject as rabbitmq } from "../brokers/rabbitmq.ts";
import { subject as redis } from "../brokers/redis.ts";
import { available } from "../servers/available.ts";
import type { Features } from "./features.ts";

/** A message as a raw client reads it. */
export interface Stored {
  readonly id: string;
  readonly key: string;
}

/** The topics of one cell. */
export interface Topics extends AsyncDisposable {
  /** A sink or a source with connections of its own. */
  open(): Broker;
  /** What the topic holds, oldest first by key. */
  stored(topic: string): Promise<readonly Stored[]>;
}

type Name = Features["broker"];
const subjects: Readonly<Partial<Record<Name, Subject>>> = { kafka, nats, rabbitmq, redis };

/** Every broker that the machine can have, each server started when a cell first asks for it. */
export interface Brokers extends AsyncDisposable {
  topics(broker: Name, names: readonly string[], consumer: string): Promise<Topics>;
}

/** Why there is no such broker; null when there is. */
export const lacking = async (broker: Name): Promise<string | null> => {
  const subject = subjects[broker];
  return subject === undefined ? null : available(subject.name);
};

export function createBrokers(): Brokers {
  const servers = new Map<Name, Promise<BrokerServer>>();
  return {
    async topics(broker, names, consumer) {
      const subject = subjects[broker];
      if (subject === undefined) return broker === "memory" ? inMemory(names) : inFile(names);
      let server = servers.get(broker);
      if (server === undefined) servers.set(broker, (server = subject.start()));
      const url = (await server).url();
      await subject.provision(url, names, [consumer]);
      const opened: Broker[] = [];
      return {
        open() {
          const one = subject.open(url);
          opened.push(one);
          return one;
        },
        stored: async (topic) => (await subject.stored(url, topic)).map(({ key, attributes }) => ({ key, id: attributes["id"] ?? "" })),
        async [Symbol.asyncDispose]() {
          for (const one of opened) await one[Symbol.asyncDispose]();
          for (const topic of names) await subject.remove(url, topic);
        },
      };
    },
    async [Symbol.asyncDispose]() {
      for (const server of servers.values()) await (await server)[Symbol.asyncDispose]();
    },
  };
}

async function inMemory(names: readonly string[]): Promise<Topics> {
  const broker = memoryBroker();
  await broker.provision(names);
  return {
    open: () => broker.reopen(),
    stored: async (topic) => broker.messages(topic).map(({ key, attributes }) => ({ id: attributes["id"] ?? "", key })),
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

async function inFile(names: readonly string[]): Promise<Topics> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-"));
  const path = join(folder, "broker.db");
  const opened: Broker[] = [];
  const open = (): ReturnType<typeof embedded> => {
    const one = embedded({ path, open: (file) => new Database(file) });
    opened.push(one);
    return one;
  };
  await open().provision(names);
  return {
    open,
    stored: async (topic) =>
      sql(
        path,
        `SELECT attributes ->> 'id' AS id, attributes ->> 'partitionkey' AS key FROM waybill_broker_messages WHERE topic = ? ORDER BY offset`,
        topic,
      ).map(({ id, key }) => ({ id: String(id), key: String(key) })),
    async [Symbol.asyncDispose]() {
      for (const one of opened) await one[Symbol.asyncDispose]();
      rmSync(folder, { recursive: true });
    },
  };
}
