import { nats } from "../../src/brokers/nats/index.ts";
import { describeWith } from "../servers/available.ts";
import { startNatsCluster } from "../servers/clusters.ts";
import { clusterSuite } from "./kit/cluster.ts";
import { raw, storedIn, using } from "./nats.ts";

await describeWith("nats", "three NATS servers: whatever happens to one or two of them, nothing is lost, reordered or doubled", () => {
  clusterSuite({
    subject: {
      name: "nats",
      dedupes: true,
      provision: (url, topics, consumers) => using({ url, replicas: 3 }, (broker) => broker.provision(topics, consumers)),
    },
    start: () => startNatsCluster(),
    open: (cluster) => nats({ url: cluster.url(), connectTimeoutMs: 1_000 }),
    stored: (cluster, topic) => storedIn(cluster.nodes[0]!.url(), topic),
    leader: (_, topic, asked) =>
      raw(asked.url(), async (__, manager) => {
        const { cluster } = await manager.streams.info(await manager.streams.find(topic));
        return cluster?.leader === undefined ? null : Number(cluster.leader.slice(1)) - 1;
      }),
    copies: { num_replicas: "3" },
    frozenMs: 12_000,
    missesFrozen: true,
  });
});
