import { randomBytes } from "node:crypto";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { kafkaBinaries } from "../../scripts/servers.mjs";
import { startTcpProxy, type TcpProxy } from "../support/tcp-proxy.ts";
import { accountFor, freePort } from "./place.ts";
import { superviseServer, type Server, type Settings } from "./server.ts";

export interface KafkaServer extends Server {
  /** It stands still, and its connections with it, until `thaw`. */
  freeze(): void;
  thaw(): void;
  /** Only with `secure` and `sasl`: the listener's port. */
  readonly tlsPort: number;
  readonly saslPort: number;
  readonly saslTlsPort: number;
  /** Only with `proxied`: a network that can be broken, in front of a listener that is advertised as the proxy. */
  readonly proxy: TcpProxy | null;
  /** Where that proxy goes on to. */
  readonly proxiedPort: number;
}

interface KafkaRecipe {
  readonly settings?: Settings;
  /** One more listener, which speaks TLS, with these files. */
  readonly secure?: { readonly ca: string; readonly cert: string; readonly key: string };
  /** One more listener, with TLS two, for this user: PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512. */
  readonly sasl?: { readonly user: string; readonly password: string };
  /** One more listener, which is reached through a proxy. */
  readonly proxied?: boolean;
  /** One of several: see clusters.ts. */
  readonly member?: KafkaMember;
}

export interface KafkaMember {
  readonly id: number;
  readonly cluster: string;
  /** The controllers' ports, by their ids: each node is broker and controller. */
  readonly controllers: ReadonlyMap<number, number>;
}

/** Every message is flushed before it is acknowledged. Its own topics have one partition each, and it does not wait for more members. */
const defaults: Settings = {
  "log.flush.interval.messages": 1,
  "auto.create.topics.enable": "false",
  "group.initial.rebalance.delay.ms": 0,
  "group.min.session.timeout.ms": 1_000,
  "offsets.topic.num.partitions": 1,
  "offsets.topic.replication.factor": 1,
  "transaction.state.log.num.partitions": 1,
  "transaction.state.log.replication.factor": 1,
  "transaction.state.log.min.isr": 1,
  "log.cleaner.dedupe.buffer.size": 4 * 1024 ** 2,
  "log.segment.delete.delay.ms": 1_000,
  "num.network.threads": 2,
  "num.io.threads": 4,
  "background.threads": 2,
  "controlled.shutdown.enable": "false",
  // A broker that a busy machine keeps from its heartbeat for longer leads no partition for a while.
  "broker.session.timeout.ms": 6_000,
  "broker.heartbeat.interval.ms": 200,
};

/** A broker that was killed may come back when its controller has missed it for so long. */
export const backSoon: Settings = { "broker.session.timeout.ms": 1_000 };

const quick = ["-Xms128m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1", "-Xshare:auto", "-Djava.awt.headless=true"];
const logging = ["-Dorg.slf4j.simpleLogger.defaultLogLevel=warn", "-Dorg.slf4j.simpleLogger.log.kafka.server.KafkaRaftServer=info"];

/** One node that is broker and controller, on files. Another program may take one of its ports between our look and its start. */
export async function startKafka(recipe: KafkaRecipe = {}): Promise<KafkaServer> {
  // The others of a cluster know a member's ports.
  for (let tries = recipe.member === undefined ? 3 : 1; ; tries--) {
    try {
      return await startOnce(recipe);
    } catch (error) {
      if (tries === 1) throw error;
    }
  }
}

async function startOnce({ settings = {}, secure, sasl, proxied = false, member }: KafkaRecipe): Promise<KafkaServer> {
  const { java, version, classes } = await kafkaBinaries();
  const [ownController, tlsPort, saslPort, saslTlsPort, behind] = [
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
    await freePort(),
  ];
  // One that begins with a dash would be taken for an option.
  const newCluster = randomBytes(16).toString("base64url").replace(/^-/, "A");
  const { id, cluster, controllers } = member ?? { id: 1, cluster: newCluster, controllers: new Map([[1, ownController]]) };
  const heap = member === undefined ? "-Xmx384m" : "-Xmx256m";
  const proxy = proxied ? await startTcpProxy(behind) : null;
  const run = (...rest: readonly string[]): readonly string[] => [heap, ...quick, ...logging, "-cp", classes, ...rest];

  const propertiesOf = (folder: string, port: number): string => {
    const listeners: (readonly [name: string, port: number, protocol: string, advertised?: number])[] = [
      ["PLAIN", port, "PLAINTEXT"],
      ...(proxy === null ? [] : [["PROXIED", behind, "PLAINTEXT", proxy.port] as const]),
      ...(secure === undefined ? [] : [["TLS", tlsPort, "SSL"] as const]),
      ...(sasl === undefined ? [] : [["SASL", saslPort, "SASL_PLAINTEXT"] as const]),
      ...(sasl === undefined || secure === undefined ? [] : [["SASLTLS", saslTlsPort, "SASL_SSL"] as const]),
    ];
    const at = (of: typeof listeners): string => of.map(([name, where]) => `${name}://127.0.0.1:${where}`).join(",");
    const all: Record<string, string | number> = {
      ...defaults,
      ...settings,
      "process.roles": "broker,controller",
      "node.id": id,
      "controller.quorum.voters": [...controllers].map(([voter, at]) => `${voter}@127.0.0.1:${at}`).join(","),
      "controller.listener.names": "CONTROLLER",
      "inter.broker.listener.name": "PLAIN",
      listeners: `${at(listeners)},CONTROLLER://127.0.0.1:${controllers.get(id)!}`,
      "advertised.listeners": at(listeners.map(([name, own, protocol, advertised]) => [name, advertised ?? own, protocol])),
      "listener.security.protocol.map": ["CONTROLLER:PLAINTEXT", ...listeners.map(([name, , protocol]) => `${name}:${protocol}`)].join(","),
      "log.dirs": join(folder, "data"),
      ...(secure === undefined ? {} : tlsOf(secure)),
      ...(sasl === undefined ? {} : saslOf(sasl, ["sasl", "sasltls"])),
    };
    return Object.entries(all)
      .map(([name, value]) => `${name}=${String(value).replaceAll("\\", "\\\\").replaceAll("\n", "\\n")}\n`)
      .join("");
  };
  const write = (folder: string, port: number): string => {
    const file = join(folder, "server.properties");
    writeFileSync(file, propertiesOf(folder, port), { mode: 0o644 });
    return file;
  };

  const server = await superviseServer({
    name: `Kafka ${version}`,
    version,
    command: java,
    account: accountFor("kafka"),
    async prepare(folder, runs) {
      const scram = sasl === undefined ? [] : ["SCRAM-SHA-256", "SCRAM-SHA-512"];
      const users = scram.flatMap((kind) => ["--add-scram", `${kind}=[name=${sasl!.user},password=${sasl!.password}]`]);
      await runs(java, run("kafka.tools.StorageTool", "format", "-t", cluster, "-c", write(folder, 1), ...users));
    },
    args: (folder, port) => run("kafka.Kafka", write(folder, port)),
    url: (port) => `kafka://127.0.0.1:${port}`,
    ready: /Kafka Server started/,
    signals: { fast: "SIGTERM", immediate: "SIGKILL" },
  }).catch(async (error: unknown) => {
    await proxy?.[Symbol.asyncDispose]();
    throw error;
  });
  const signal = (name: NodeJS.Signals): void => {
    if (server.pid !== null) process.kill(server.pid, name);
  };
  const more = {
    freeze: () => signal("SIGSTOP"),
    thaw: () => signal("SIGCONT"),
    ...{ tlsPort, saslPort, saslTlsPort, proxy, proxiedPort: behind },
  } as KafkaServer;
  return Object.defineProperties(more, {
    ...Object.getOwnPropertyDescriptors(server),
    [Symbol.asyncDispose]: {
      value: async () => {
        await proxy?.[Symbol.asyncDispose]();
        await server[Symbol.asyncDispose]();
      },
    },
  });
}

const tlsOf = ({ ca, cert, key }: NonNullable<KafkaRecipe["secure"]>): Settings => ({
  "ssl.keystore.type": "PEM",
  "ssl.keystore.certificate.chain": readFileSync(cert, "utf8"),
  "ssl.keystore.key": readFileSync(key, "utf8"),
  "ssl.truststore.type": "PEM",
  "ssl.truststore.certificates": readFileSync(ca, "utf8"),
  "ssl.client.auth": "requested",
});

function saslOf({ user, password }: NonNullable<KafkaRecipe["sasl"]>, listeners: readonly string[]): Settings {
  const module = (name: string, rest: string): string => `org.apache.kafka.common.security.${name} required ${rest};`;
  const all: Record<string, string> = { "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-256,SCRAM-SHA-512" };
  for (const listener of listeners) {
    const under = `listener.name.${listener}`;
    all[`${under}.plain.sasl.jaas.config`] = module("plain.PlainLoginModule", `user_${user}="${password}"`);
    for (const kind of ["scram-sha-256", "scram-sha-512"])
      all[`${under}.${kind}.sasl.jaas.config`] = module("scram.ScramLoginModule", `username="none" password="none"`);
  }
  return all;
}
