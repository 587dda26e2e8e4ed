import { afterAll, beforeAll, beforeEach, expect, test } from "vitest";
import type { Examination } from "../../../src/contracts/doctor.ts";
import type { Cluster } from "../../servers/clusters.ts";
import { byAggregate, firsts, pause } from "./changes.ts";
import { openScene, type Scene } from "./scene.ts";
import { freshType, type Broker, type BrokerServer, type Subject } from "./subject.ts";

export interface ClusterSubject {
  readonly subject: Pick<Subject, "name" | "provision" | "dedupes">;
  start(): Promise<Cluster<BrokerServer>>;
  /** With the URL of all three. */
  open(cluster: Cluster<BrokerServer>): Broker & Examination;
  /** Everything that the topic holds, read with a raw client. */
  stored(cluster: Cluster<BrokerServer>, topic: string): ReturnType<Subject["stored"]>;
  /** Which of the nodes leads the topic, or null while none does. Asks this node. */
  leader(cluster: Cluster<BrokerServer>, topic: string, asked: BrokerServer): Promise<number | null>;
  /** What doctor reads of the topic's copies, by setting. */
  readonly copies: Readonly<Record<string, string>>;
  /** Longer than the time-outs of the client and of the relay. */
  readonly frozenMs: number;
  /** The others miss a frozen node within that time, and go on. */
  readonly missesFrozen: boolean;
}

/** What may befall a broker of three nodes; call it in a `describeWith`. */
export function clusterSuite(given: ClusterSubject): { readonly cluster: () => Cluster<BrokerServer> } {
  let cluster: Cluster<BrokerServer>;
  beforeAll(async () => void (cluster = await given.start()));
  afterAll(() => cluster[Symbol.asyncDispose]());
  beforeEach(async () => {
    for (const node of cluster.nodes) node.thaw();
    await startAll();
    // They may have to choose a leader before they make a topic.
    const makes = (): Promise<boolean> =>
      given.subject.provision(cluster.url(), [freshType().topic], ["shop"]).then(
        () => true,
        () => false,
      );
    await expect.poll(makes, { timeout: 60_000 }).toBe(true);
  });

  /** The node that leads, once it is another than this one. */
  const ledBy = async (topic: string, asked: BrokerServer, not?: number): Promise<number> => {
    let leader: number | null = null;
    const isLed = async (): Promise<boolean> => {
      leader = await given.leader(cluster, topic, asked).catch(() => null);
      return leader !== null && leader !== not;
    };
    await expect.poll(isLed, { timeout: 90_000 }).toBe(true);
    return leader!;
  };
  /** As whoever looks after them would: RabbitMQ 3.10 may end when all its nodes start in the same moment. */
  const startAll = (): Promise<unknown> =>
    Promise.all(cluster.nodes.filter(({ pid }) => pid === null).map((node) => node.start().catch(() => node.start())));
  const other = (...not: readonly number[]): number => [0, 1, 2].find((node) => !not.includes(node))!;

  /** Under load until it is left; then everything that was added is there. */
  async function underLoad(faults: number, work: (scene: Scene) => Promise<void>): Promise<void> {
    const reach = { url: cluster.url(), open: () => given.open(cluster) };
    const stored = (_: string, topic: string) => given.stored(cluster, topic);
    await using scene = await openScene({ ...given.subject, stored } as unknown as Subject, reach);
    const load = scene.load();
    try {
      await scene.warm(200);
      await work(scene);
      await scene.warm(scene.effects().length + 500);
      await load.end();
      await scene.done();
      await scene.judge(faults);
    } finally {
      await load.end(); // or the topic would have no end to read to
      const of = (type: string): number => scene.events.filter((event) => event.type === type).length;
      const log = await scene.stored().catch(() => []);
      const known = firsts(log).length;
      console.log(
        `${given.subject.name} of three: ${scene.added.length} events, ${known} stored, ${log.length - known} copies, ${scene.effects().length} effects, ` +
          `${of("destination.opened")} openings, ${of("destination.closed")} closings, ${of("subscriber.trouble")} troubles`,
      );
      for (const { destination, why } of (await scene.status()).breakers) console.log(`${destination} waits: ${why}`);
    }
  }

  test("doctor finds that three nodes have each message", async () => {
    const { topic } = freshType();
    await given.subject.provision(cluster.url(), [topic], ["shop"]);
    await using broker = given.open(cluster);
    const findings = await broker.examine([topic], AbortSignal.timeout(60_000));
    for (const [setting, value] of Object.entries(given.copies))
      expect(findings.find((finding) => finding.setting.startsWith(setting))).toMatchObject({ value, verdict: "good" });
  });

  test("the node that leads the topic is killed and started again, time after time: nothing lost, reordered or done twice", () =>
    underLoad(3, async (scene) => {
      for (let round = 0; round < 3; round++) {
        const leader = await ledBy(scene.topic, cluster.nodes[round]!);
        await cluster.nodes[leader]!.kill9();
        await ledBy(scene.topic, cluster.nodes[other(leader)]!, leader);
        await scene.warm(scene.effects().length + 200); // the two others go on
        await cluster.nodes[leader]!.start();
        await scene.warm(scene.effects().length + 200);
      }
    }));

  test("the node that leads, then another, is frozen for longer than every time-out of ours, and joins the others again", () =>
    underLoad(2, async (scene) => {
      for (const which of ["leader", "follower"] as const) {
        const leader = await ledBy(scene.topic, cluster.nodes[0]!);
        const node = which === "leader" ? leader : other(leader);
        cluster.nodes[node]!.freeze();
        const since = performance.now();
        try {
          if (given.missesFrozen) await scene.warm(scene.effects().length + 200);
          await pause(since + given.frozenMs - performance.now());
          if (given.missesFrozen) await scene.warm(scene.effects().length + 200);
        } finally {
          cluster.nodes[node]!.thaw();
        }
        await scene.warm(scene.effects().length + 200, 90_000);
      }
    }));

  test("two of three are away, one killed and one frozen: events wait, it is told for what, and all goes on by itself", () =>
    underLoad(1, async (scene) => {
      const leader = await ledBy(scene.topic, cluster.nodes[0]!);
      const [killed, frozen] = [cluster.nodes[leader]!, cluster.nodes[other(leader)]!];
      frozen.freeze();
      await killed.kill9();
      try {
        await scene.seen();
        await pause(1_000); // for what was acknowledged before
        const published = (await scene.status()).states.PUBLISHED;
        await pause(given.frozenMs);
        expect((await scene.status()).states.PUBLISHED).toBe(published);
      } finally {
        frozen.thaw();
        await killed.start();
      }
      await scene.healed();
    }));

  test("all three are killed and started again: what was acknowledged is there", () =>
    underLoad(1, async (scene) => {
      await Promise.all(cluster.nodes.map((node) => node.kill9()));
      await scene.seen();
      await startAll();
      await scene.healed();
      const { states } = await scene.status();
      const stored = firsts(await scene.stored());
      expect(stored.length).toBeGreaterThanOrEqual(states.PUBLISHED);
      for (const numbers of Object.values(byAggregate(stored))) expect(numbers).toEqual(numbers.map((_, at) => at + 1));
    }));

  return { cluster: () => cluster };
}
