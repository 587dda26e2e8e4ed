import { kafka } from "../../src/brokers/kafka/index.ts";
import { describeWith } from "../servers/available.ts";
import { startKafkaCluster } from "../servers/clusters.ts";
import { leadersOf, readTopic } from "./kafka-raw.ts";
import { clusterSuite } from "./kit/cluster.ts";

await describeWith("kafka", "three Kafka brokers: whatever happens to one or two of them, nothing is lost or reordered", () => {
  clusterSuite({
    subject: {
      name: "kafka",
      dedupes: false,
      async provision(url, topics) {
        await using broker = kafka({ url, partitions: 4, replicas: 3 });
        await broker.provision(topics);
      },
    },
    start: startKafkaCluster,
    open: (cluster) => kafka({ url: cluster.url(), timeoutMs: 1_500, sessionMs: 6_000 }),
    stored: (cluster, topic) => readTopic(cluster.nodes[0]!.url(), topic),
    async leader({ nodes }, topic, asked) {
      const leaders = await leadersOf(asked.url(), topic);
      return Array.isArray(leaders) ? nodes.findIndex(({ port }) => port === (leaders[0] as { port: number }).port) : null;
    },
    copies: { replicas: "3", "min.insync.replicas": "2" },
    frozenMs: 9_000,
    missesFrozen: true,
  });
});
