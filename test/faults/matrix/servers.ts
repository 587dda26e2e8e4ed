import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { defaultDriver } from "../../../src/drivers/sqlite/driver.ts";
import type { ReadMessage } from "../../../src/proof/run/reads.ts";
import { fileBeside } from "../../../src/drivers/sqlite/place.ts";
import { startTcpProxy, type TcpProxy } from "../../../src/proof/run/tcp-proxy.ts";
import type { StoredMessage } from "../../../src/conformance/sink.ts";
import { subject as kafka } from "../../brokers/kafka.ts";
import { subject as nats } from "../../brokers/nats.ts";
import { raw, storedIn, tapOf } from "../../brokers/rabbitmq.ts";
import { subject as redis } from "../../brokers/redis.ts";
import type { BrokerServer } from "../../brokers/kit/subject.ts";
import { backSoon, startKafka } from "../../servers/kafka.ts";
import { startMariadb } from "../../servers/mariadb.ts";
import { startNats } from "../../servers/nats.ts";
import { startMysql } from "../../servers/mysql.ts";
import { startPostgres, type PostgresVersion } from "../../servers/postgres.ts";
import { startRabbitmq } from "../../servers/rabbitmq.ts";
import { startRedis } from "../../servers/redis.ts";
import type { Server } from "../../servers/server.ts";
import { onMysql } from "./clients.ts";
import type { BrokerName, StoreName } from "./pairs.ts";

/** Something to store in or to publish to, reached directly and over a network that can be broken. */
export interface Reached<S extends Server = Server> extends AsyncDisposable {
  /** Null where there is only a file. */
  readonly server: S | null;
  readonly link: TcpProxy | null;
  readonly url: string;
  /** By way of the network. */
  readonly linked: string;
}

export interface ReachedBroker extends Reached<BrokerServer> {
  /** Once topics are there: whatever is needed to read them with a raw client. */
  tap(run: string, topics: readonly string[]): Promise<void>;
  /** With a raw client, and nothing of the adapter. */
  read(run: string, topic: string): Promise<readonly ReadMessage[]>;
}

export async function reach<S extends Server>(server: S): Promise<Reached<S>> {
  const link = await startTcpProxy(server.port);
  const url = server.url();
  return {
    ...{ server, link, url, linked: url.replace(`:${server.port}`, `:${link.port}`) },
    async [Symbol.asyncDispose]() {
      await link[Symbol.asyncDispose]();
      await server[Symbol.asyncDispose]();
    },
  };
}

/** Its own database holds nothing but its own tables. */
async function reachMysql(server: Server): Promise<Reached> {
  const { link, [Symbol.asyncDispose]: dispose } = await reach(server);
  await onMysql(server.url(), (connection) => connection.query("CREATE DATABASE test"));
  const url = server.url("test");
  return { server, link, url, linked: url.replace(`:${server.port}`, `:${link!.port}`), [Symbol.asyncDispose]: dispose };
}

function folderReach(scheme: "sqlite" | "embedded"): Reached<never> {
  const folder = mkdtempSync(join(tmpdir(), "waybill-matrix-"));
  const url = `${scheme}:${join(folder, "file.db")}`;
  return {
    server: null,
    link: null,
    url,
    linked: url,
    [Symbol.asyncDispose]: async () => rmSync(folder, { recursive: true, force: true }),
  };
}

export async function startStore(name: StoreName, version = "usual"): Promise<Reached> {
  switch (name) {
    case "postgres":
      return reach(await startPostgres({ version: (version === "usual" ? 15 : Number(version)) as PostgresVersion }));
    case "mariadb":
      return reach(await startMariadb(version === "11.8" ? { version } : {}));
    case "mysql":
      return reachMysql(await startMysql(version === "8.0" ? { version } : {}));
    case "sqlite":
      return folderReach("sqlite");
  }
}

const found = ({ attributes, headers, data }: StoredMessage): ReadMessage => ({
  id: String(attributes["id"]),
  aggregateType: String(attributes["aggregatetype"]),
  aggregateId: String(attributes["partitionkey"]),
  type: String(attributes["type"]),
  contentType: String(attributes["datacontenttype"]),
  headers,
  data,
});
/** What has no id is nobody's of the run: a row may publish such on purpose. What is lost with its id is missed elsewhere. */
const ofEvents = (messages: readonly StoredMessage[]): readonly ReadMessage[] =>
  messages.filter(({ attributes }) => attributes["id"] !== undefined).map(found);
const untapped = async (): Promise<void> => undefined;

export async function startBroker(name: BrokerName, version = "usual"): Promise<ReachedBroker> {
  switch (name) {
    case "kafka": {
      const server = await startKafka({ proxied: true, settings: backSoon });
      const url = server.url();
      return {
        ...{ server, link: server.proxy, url, linked: `kafka://127.0.0.1:${server.proxy!.port}`, tap: untapped },
        read: async (_, topic) => ofEvents(await kafka.stored(url, topic)),
        [Symbol.asyncDispose]: () => server[Symbol.asyncDispose](),
      };
    }
    case "rabbitmq": {
      const reached = await reach<BrokerServer>(
        await startRabbitmq(version === "4" ? { version: 4 } : version === "newest" ? { version } : {}),
      );
      const tap = (run: string, topics: readonly string[]): Promise<void> =>
        raw(reached.url, async (channel) => {
          for (const topic of topics) {
            await channel.assertQueue(tapOf(topic), { durable: true, arguments: { "x-queue-type": "quorum" } });
            await channel.bindQueue(tapOf(topic), run, topic);
          }
        });
      return { ...reached, tap, read: async (_, topic) => ofEvents(await storedIn(reached.url, topic)) };
    }
    case "nats": {
      const reached = await reach<BrokerServer>(await startNats(version === "2.10" || version === "newest" ? { version } : {}));
      return { ...reached, tap: untapped, read: async (_, topic) => ofEvents(await nats.stored(reached.url, topic)) };
    }
    case "redis": {
      const reached = await reach<BrokerServer>(await startRedis(version === "redis-8" || version === "valkey-newest" ? { version } : {}));
      return { ...reached, tap: untapped, read: async (_, topic) => ofEvents(await redis.stored(reached.url, topic)) };
    }
    case "embedded": {
      const reached = folderReach("embedded");
      return { ...reached, tap: untapped, read: (run, topic) => readFile(fileBeside(reached.url.slice("embedded:".length), run), topic) };
    }
  }
}

async function readFile(path: string, topic: string): Promise<readonly ReadMessage[]> {
  const db = (await defaultDriver())(path);
  try {
    const rows = db.prepare(`SELECT attributes, headers, data FROM waybill_broker_messages WHERE topic = ? ORDER BY "offset"`).all(topic);
    return (rows as { attributes: string | Uint8Array; headers: string | Uint8Array; data: Uint8Array }[]).map((row) => {
      const parse = (text: string | Uint8Array): Record<string, string> =>
        JSON.parse(typeof text === "string" ? text : Buffer.from(text).toString()) as Record<string, string>;
      return found({ key: "", attributes: parse(row.attributes), headers: parse(row.headers), data: new Uint8Array(row.data) });
    });
  } finally {
    db.close();
  }
}

/** As it is before any fault. */
export async function whole({ server, link }: Reached<Server>): Promise<void> {
  link?.heal();
  if (server === null) return;
  if ("thaw" in server) (server as BrokerServer).thaw();
  if (server.pid === null) await server.start();
}
