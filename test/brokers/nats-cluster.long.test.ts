import { tmpdir } from "node:os";
import { expect, test } from "vitest";
import { nats } from "../../src/brokers/nats/index.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startNatsCluster } from "../servers/clusters.ts";
import { clusterSuite } from "./kit/cluster.ts";
import { freshTopic, never, raw, storedIn, using } from "./nats.ts";

await describeWith("nats", "three NATS servers: whatever happens to one or two of them, nothing is lost, reordered or doubled", () => {
  const { cluster } = clusterSuite({
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

  test("waybill migrate makes streams with as many replicas as the URL names, and doctor finds one replica too few", async () => {
    const copiesOf = async (topic: string, url: string) => {
      const migrated = await inProcess(["migrate", "--broker", url, "--topics", topic], { cwd: tmpdir() });
      expect(migrated, migrated.stderr).toMatchObject({ code: 0 });
      const findings = await using({ url }, (broker) => broker.examine([topic], never));
      const { config } = await raw(cluster().nodes[0]!.url(), async (_, manager) =>
        manager.streams.info(await manager.streams.find(topic)),
      );
      return { stream: config.num_replicas, doctor: findings.find(({ setting }) => setting.startsWith("num_replicas")) };
    };
    expect(await copiesOf(freshTopic(), `${cluster().url()}?replicas=3`)).toMatchObject({ stream: 3, doctor: { verdict: "good" } });
    expect(await copiesOf(freshTopic(), cluster().url())).toMatchObject({
      stream: 1,
      doctor: { verdict: "bad", breaks: "L", why: expect.stringContaining("replicas=3") as string },
    });
  });
});
