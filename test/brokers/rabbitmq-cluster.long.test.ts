import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { describeWith } from "../servers/available.ts";
import { startRabbitmqCluster } from "../servers/clusters.ts";
import type { RabbitmqServer } from "../servers/rabbitmq.ts";
import { clusterSuite } from "./kit/cluster.ts";
import { provision, storedIn } from "./rabbitmq.ts";

await describeWith("rabbitmq", "three RabbitMQ nodes: whatever happens to one or two of them, nothing is lost or reordered", () => {
  clusterSuite({
    subject: {
      name: "rabbitmq",
      dedupes: false,
      provision: (url, topics, consumers) => provision(url.replace(/,.*/, ""), topics, consumers), // the bare client knows one node
    },
    start: () => startRabbitmqCluster(),
    open: (cluster) => rabbitmq({ url: cluster.url(), timeoutMs: 2_000, management: (cluster.nodes[0] as RabbitmqServer).management }),
    stored: (cluster, topic) => storedIn(cluster.nodes[0]!.url(), topic),
    async leader(_, topic, asked) {
      const told = await (asked as RabbitmqServer).control("list_queues", "name", "leader");
      const leader = told.split("\n").find((line) => line.startsWith(`shop.${topic}\t`)) ?? "";
      const number = /-(\d)@/.exec(leader)?.[1];
      return number === undefined ? null : Number(number) - 1;
    },
    copies: { "type of": "quorum on 3 of 3 nodes" },
    frozenMs: 12_000,
    // Before its net_ticktime of 60 s, Erlang takes a frozen node for a slow one.
    missesFrozen: false,
  });
});
