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
    // Not rabbitmqctl: each call starts an Erlang of its own, which takes a busy machine longer than a node's election.
    async leader(_, topic, asked) {
      const { origin, username, password } = new URL((asked as RabbitmqServer).management);
      const headers = { authorization: `Basic ${btoa(`${username}:${password}`)}` };
      const answer = await fetch(`${origin}/api/queues/%2F/shop.${topic}`, { headers, signal: AbortSignal.timeout(10_000) });
      const { node = "" } = (await answer.json()) as { readonly node?: string };
      const number = /-(\d)@/.exec(node)?.[1];
      return number === undefined ? null : Number(number) - 1;
    },
    copies: { "type of": "quorum on 3 of 3 nodes" },
    frozenMs: 12_000,
    // Before its net_ticktime of 60 s, Erlang takes a frozen node for a slow one.
    missesFrozen: false,
  });
});
