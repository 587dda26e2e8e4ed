import { randomBytes } from "node:crypto";
import { setTimeout as sleep } from "node:timers/promises";
import { startKafka, type KafkaMember, type KafkaServer } from "./kafka.ts";
import { startNats, type NatsRecipe, type NatsServer } from "./nats.ts";
import { freePort } from "./place.ts";
import { startPortMapper, startRabbitmq, type RabbitmqMember, type RabbitmqRecipe, type RabbitmqServer } from "./rabbitmq.ts";
import type { Server } from "./server.ts";

/** Three servers that know each other. Each is stopped, killed, frozen and started by itself. */
export interface Cluster<One extends Server = Server> extends AsyncDisposable {
  readonly version: string;
  readonly nodes: readonly One[];
  /** Names all three. */
  url(): string;
}

const numbers = [1, 2, 3] as const;

/**
 * Each is broker and controller, and topics have three replicas, of which two must have a message. A broker that is gone for three seconds
 * is out.
 */
export const startKafkaCluster = (): Promise<Cluster<KafkaServer>> =>
  again(async () => {
    const controllers = new Map<number, number>();
    for (const id of numbers) controllers.set(id, await freePort());
    const cluster = `A${randomBytes(16).toString("base64url").slice(1)}`;
    const settings = {
      "default.replication.factor": 3,
      "min.insync.replicas": 2,
      "offsets.topic.replication.factor": 3,
      "transaction.state.log.replication.factor": 3,
      "transaction.state.log.min.isr": 2,
      "broker.session.timeout.ms": 3_000,
    };
    const start = (id: KafkaMember["id"]) => startKafka({ settings, member: { id, cluster, controllers } });
    return clusterOf(await allOrNone(numbers.map(start)), "kafka://");
  });

/** Streams may have three replicas. */
export const startNatsCluster = (version?: NatsRecipe["version"]): Promise<Cluster<NatsServer>> =>
  again(async () => {
    const ports = new Map<number, number>();
    for (const id of numbers) ports.set(id, await freePort());
    const routes = [...ports.values()].map((port) => `"nats://127.0.0.1:${port}"`).join(", ");
    const settingsOf = (id: number): string =>
      `server_name: n${id}\ncluster { name: waybill, listen: "127.0.0.1:${ports.get(id)!}", routes: [${routes}] }`;
    const nodes = await allOrNone(numbers.map((id) => startNats({ version, settings: settingsOf(id) })));
    const cluster = clusterOf(nodes, "nats://");
    try {
      const knows = (node: Server): boolean => /new (JetStream cluster )?metadata leader/.test(node.log());
      await until("the servers' choice of a leader", () => nodes.every(knows));
      return cluster;
    } catch (error) {
      await cluster[Symbol.asyncDispose]();
      throw error;
    }
  });

/** The second and the third join the first. All have the management plugin. */
export const startRabbitmqCluster = (version?: RabbitmqRecipe["version"]): Promise<Cluster<RabbitmqServer>> =>
  again(async () => {
    const mapper = await startPortMapper(version);
    const cookie = randomBytes(10).toString("hex");
    const first = `waybill-${mapper.port}-1@localhost`;
    const start = (id: number): Promise<RabbitmqServer> => {
      const member: RabbitmqMember = { name: `waybill-${mapper.port}-${id}@localhost`, mapperPort: mapper.port, cookie };
      const settings = { "cluster_formation.peer_discovery_backend": "classic_config", "cluster_formation.classic_config.nodes.1": first };
      return startRabbitmq({ version, member, settings, management: true });
    };
    try {
      const nodes = await start(1).then(async (one) => [one, ...(await allOrNone([2, 3].map(start), one))]);
      const cluster = clusterOf(nodes, "amqp://guest:guest@");
      return {
        ...cluster,
        async [Symbol.asyncDispose]() {
          await cluster[Symbol.asyncDispose]();
          await mapper[Symbol.asyncDispose]();
        },
      };
    } catch (error) {
      await mapper[Symbol.asyncDispose]();
      throw error;
    }
  });

function clusterOf<One extends Server>(nodes: readonly One[], scheme: string): Cluster<One> {
  return {
    version: nodes[0]!.version,
    nodes,
    url: () => `${scheme}${nodes.map(({ port }) => `127.0.0.1:${port}`).join(",")}`,
    async [Symbol.asyncDispose]() {
      await Promise.all(nodes.map((node) => node[Symbol.asyncDispose]()));
    },
  };
}

/** Where one cannot be started, those that were do not stay. */
async function allOrNone<One extends AsyncDisposable>(starting: readonly Promise<One>[], ...before: One[]): Promise<readonly One[]> {
  const all = await Promise.allSettled(starting);
  const failed = all.find((each) => each.status === "rejected");
  const started = all.flatMap((each) => (each.status === "fulfilled" ? [each.value] : []));
  if (failed === undefined) return started;
  await Promise.all([...before, ...started].map((one) => one[Symbol.asyncDispose]()));
  throw failed.reason;
}

/** Another program may take one of the ports between our look and the start. */
async function again<T>(start: () => Promise<T>): Promise<T> {
  for (let tries = 3; ; tries--) {
    try {
      return await start();
    } catch (error) {
      if (tries === 1) throw error;
    }
  }
}

async function until(what: string, isSo: () => boolean): Promise<void> {
  for (const end = performance.now() + 30_000; !isSo(); await sleep(20))
    if (performance.now() > end) throw new Error(`${what} took more than 30 s`);
}
