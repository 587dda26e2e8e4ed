import { tmpdir } from "node:os";
import { afterAll, beforeAll, expect, test } from "vitest";
import { kafka } from "../../src/brokers/kafka/index.ts";
import type { Finding } from "../../src/core/finding.ts";
import { changeTopic, makeTopic } from "../brokers/kafka-raw.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;
const user = { user: "relay", password: "s3cret" };
const healthy = { "min.insync.replicas": "2" };
/** A server that stands alone cannot have more, and the topic asks for more: nothing else of it is bad. */
const alone = (topic: string): readonly string[] => [`replicas of ${topic} L`];

await describeWith("kafka", "waybill doctor on Kafka", () => {
  let server: KafkaServer;
  const settings: Record<string, string> = {};

  const examine = async (topics: readonly string[], maxBytes = 1_048_576): Promise<readonly Finding[]> => {
    await using broker = kafka({ url: server.url(), maxBytes });
    return await broker.examine(topics, never);
  };

  beforeAll(async () => {
    server = await startKafka({ settings, sasl: user });
    await makeTopic(server.url(), "order.events", 2, healthy);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  test("nothing is bad of a healthy topic but what a server that stands alone cannot do, and no secret is told", async () => {
    const findings = await examine(["order.events"]);
    expect(badOf(findings)).toEqual(alone("order.events"));
    expect(findings.filter(({ verdict }) => verdict === "unknown")).toEqual([]);
    expect(findings[0]!.why).toMatch(/^min\.insync\.replicas is 2, so that nothing is stored/);
    const url = `kafka://relay:s3cret@127.0.0.1:${server.saslPort}?sasl=plain`;
    const { code, stdout, stderr } = await inProcess(["doctor", "--broker", url, "--topics", "order.events"], { cwd: tmpdir() });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^1 bad setting, 0 unknown, 10 good\.\n/);
    expect(stdout + stderr).not.toContain("s3cret");
  });

  test.each<[setting: string, planted: string, healthy: string, letters: string]>([
    ["min.insync.replicas", "1", "2", "L"],
    ["unclean.leader.election.enable", "true", "false", "LO"],
    ["cleanup.policy", "compact", "delete", "L"],
    ["cleanup.policy", "compact,delete", "delete", "L"],
    ["retention.ms", "3600000", "604800000", "L"],
    ["retention.bytes", "1000000", "-1", "L"],
    ["max.message.bytes", "100000", "1048588", "I"],
  ])("%s=%s is found, and nothing else", async (setting, planted, mended, letters) => {
    await changeTopic(server.url(), "order.events", setting, planted);
    const found = await examine(["order.events"]);
    expect(badOf(found)).toEqual([...alone("order.events"), `${setting} of order.events ${letters}`]);
    expect(found.find((one) => one.setting.startsWith(setting))).toMatchObject({ value: planted, verdict: "bad" });
    await changeTopic(server.url(), "order.events", setting, mended);
    expect(badOf(await examine(["order.events"]))).toEqual(alone("order.events"));
  });

  test("a topic that takes as much as we send is good, however little that is", async () => {
    await makeTopic(server.url(), "small.events", 1, { ...healthy, "max.message.bytes": "100000" });
    expect(badOf(await examine(["small.events"], 100_000))).toEqual(alone("small.events"));
  });

  test("a topic that is not there is found beside one that is", async () => {
    expect(badOf(await examine(["no.events", "order.events"]))).toEqual(["topic no.events L", ...alone("order.events")]);
  });

  test("topics that come into being by themselves are found, and doctor makes none", async () => {
    settings["auto.create.topics.enable"] = "true";
    await server.restart("fast");
    expect(badOf(await examine(["typo.events"]))).toEqual(["topic typo.events L", "auto.create.topics.enable V"]);
    expect(badOf(await examine(["typo.events"]))).toEqual(["topic typo.events L", "auto.create.topics.enable V"]);
  });
});
