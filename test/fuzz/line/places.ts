import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import mysql2 from "mysql2/promise";
import pg from "pg";
import { embedded } from "../../../src/brokers/embedded/index.ts";
import { kafka } from "../../../src/brokers/kafka/index.ts";
import { nats } from "../../../src/brokers/nats/index.ts";
import { rabbitmq } from "../../../src/brokers/rabbitmq/index.ts";
import { redis } from "../../../src/brokers/redis/index.ts";
import { defaultDriver } from "../../../src/drivers/sqlite/driver.ts";
import { mysql } from "../../../src/stores/mysql/index.ts";
import { postgres } from "../../../src/stores/postgres/index.ts";
import { sqlite } from "../../../src/stores/sqlite/index.ts";
import { startKafka } from "../../servers/kafka.ts";
import { startMariadb } from "../../servers/mariadb.ts";
import { startNats } from "../../servers/nats.ts";
import { startPostgres } from "../../servers/postgres.ts";
import { startRabbitmq } from "../../servers/rabbitmq.ts";
import { startRedis } from "../../servers/redis.ts";
import { startTcpProxy, type TcpProxy } from "../../support/tcp-proxy.ts";
import type { Opened } from "../publishers.ts";
import type { LineName } from "./frames.ts";
import type { Config } from "./told.ts";

type Rows = readonly Readonly<Record<string, unknown>>[];

/** Empty tables and a topic, whose server is reached through the line by the child, and directly by the judge. */
export interface Ground {
  readonly config: Config;
  /** Directly. */
  query(sql: string): Promise<Rows>;
  close(): Promise<void>;
}

export interface LinePlace extends AsyncDisposable {
  readonly proxy: TcpProxy;
  create(): Promise<Ground>;
}

/** It must show in no message. */
export const secret = "s3cr3tw0rd";
const consumer = "line";
const effects = (text: string): string => `CREATE TABLE effects (event_id ${text}, payload ${text})`;

let made = 0;
const topicOf = (): string => `line-${process.pid}-${++made}.events`;

interface Server extends AsyncDisposable {
  readonly port: number;
  url(database?: string): string;
}

type Folder = Pick<Config, "store" | "file"> & { remove(): void };
function folder(): Folder {
  const path = mkdtempSync(join(tmpdir(), "waybill-line-"));
  return { store: join(path, "store.db"), file: join(path, "broker.db"), remove: () => rmSync(path, { recursive: true, force: true }) };
}

async function proxied(server: Server, proxy: TcpProxy, create: LinePlace["create"], end: () => Promise<void>): Promise<LinePlace> {
  return {
    proxy,
    create,
    async [Symbol.asyncDispose]() {
      await end();
      await proxy[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

async function atBroker(
  name: LineName,
  server: Server,
  proxy: TcpProxy,
  url: string,
  open: () => Opened & AsyncDisposable,
): Promise<LinePlace> {
  const driver = await defaultDriver();
  const create = async (): Promise<Ground> => {
    const topic = topicOf();
    const { remove, ...files } = folder();
    await using broker = open();
    await broker.provision([topic], [consumer]);
    await using store = sqlite({ path: files.store });
    await store.schema.migrate();
    const db = driver(files.store);
    db.exec("PRAGMA busy_timeout = 5000");
    db.exec(effects("TEXT"));
    return {
      config: { name, url, topic, ...files },
      query: async (sql) => (/^SELECT/.test(sql) ? (db.prepare(sql).all() as Rows) : (db.exec(sql), [])),
      async close() {
        db.close();
        remove();
      },
    };
  };
  return proxied(server, proxy, create, async () => undefined);
}

async function files(topic: string): Promise<Folder> {
  const made = folder();
  await using broker = embedded({ path: made.file });
  await broker.provision([topic]);
  return made;
}

export const openLines: Readonly<Record<LineName, () => Promise<LinePlace>>> = {
  async postgres() {
    const server = await startPostgres({ version: 15 });
    const proxy = await startTcpProxy(server.port);
    const pool = new pg.Pool({ connectionString: server.url(), max: 2 });
    pool.on("error", () => undefined);
    const create = async (): Promise<Ground> => {
      const [topic, database] = [topicOf(), `line_${made}`];
      await pool.query(`CREATE DATABASE ${database}`);
      const { remove, ...rest } = await files(topic);
      const own = new pg.Pool({ connectionString: server.url(database), max: 2 });
      own.on("error", () => undefined);
      await using store = postgres({ url: server.url(database) });
      await store.schema.migrate();
      await own.query(effects("text"));
      return {
        config: { name: "postgres", url: `postgres://postgres:${secret}@127.0.0.1:${proxy.port}/${database}`, topic, ...rest },
        query: async (sql) => (await own.query(sql)).rows as Rows,
        async close() {
          await own.end();
          await pool.query(`DROP DATABASE ${database} WITH (FORCE)`);
          remove();
        },
      };
    };
    return proxied(server, proxy, create, () => pool.end());
  },

  async mariadb() {
    const server = await startMariadb();
    const proxy = await startTcpProxy(server.port);
    const root = mysql2.createPool({ uri: server.url(), connectionLimit: 2 });
    for (const host of ["%", "localhost"]) {
      await root.query(`CREATE USER waybill@'${host}' IDENTIFIED BY '${secret}'`);
      await root.query(`GRANT ALL ON *.* TO waybill@'${host}'`);
    }
    const create = async (): Promise<Ground> => {
      const [topic, database] = [topicOf(), `line_${made}`];
      await root.query(`CREATE DATABASE ${database}`);
      const { remove, ...rest } = await files(topic);
      const own = mysql2.createPool({ uri: server.url(database), connectionLimit: 2 });
      await using store = mysql({ url: server.url(database) });
      await store.schema.migrate();
      await own.query(effects("varchar(255)"));
      return {
        config: { name: "mariadb", url: `mysql://waybill:${secret}@127.0.0.1:${proxy.port}/${database}`, topic, ...rest },
        query: async (sql) => ((await own.query(sql)) as unknown as [Rows])[0],
        async close() {
          await own.end();
          await root.query(`DROP DATABASE ${database}`);
          remove();
        },
      };
    };
    return proxied(server, proxy, create, () => root.end());
  },

  async kafka() {
    const server = await startKafka({ proxied: true });
    return atBroker("kafka", server, server.proxy!, `kafka://127.0.0.1:${server.proxy!.port}`, () =>
      kafka({ url: server.url(), partitions: 2 }),
    );
  },
  async rabbitmq() {
    const server = await startRabbitmq();
    const proxy = await startTcpProxy(server.port);
    return atBroker("rabbitmq", server, proxy, `amqp://guest:guest@127.0.0.1:${proxy.port}`, () => rabbitmq({ url: server.url() }));
  },
  async nats() {
    const server = await startNats();
    const proxy = await startTcpProxy(server.port);
    return atBroker("nats", server, proxy, `nats://waybill:${secret}@127.0.0.1:${proxy.port}`, () => nats({ url: server.url() }));
  },
  async redis() {
    const server = await startRedis();
    const proxy = await startTcpProxy(server.port);
    return atBroker("redis", server, proxy, `redis://127.0.0.1:${proxy.port}`, () => redis({ url: server.url() }));
  },
};
