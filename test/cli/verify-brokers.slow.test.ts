import { mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Admin } from "@platformatic/kafka";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { streamName } from "../../src/brokers/nats/names.ts";
import { deadTopicOf, topicsOf } from "../../src/proof/run/ground.ts";
import type { RunReport } from "../../src/cli/verify/report.ts";
import { accessTo } from "../../src/cli/url.ts";
import { openRunBroker } from "../../src/proof/run/access.ts";
import { raw as rawNats } from "../brokers/nats.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { startNats } from "../servers/nats.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { cli, start } from "./build.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-verify-brokers-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function verify(broker: string): Promise<RunReport> {
  const args = ["verify", "--store", "sqlite:./a.db", "--broker", broker, "--minutes", "0.1", "--seed", "4", "--json"];
  const told = await cli(args, { cwd: folder });
  expect(told, told.stdout + told.stderr).toMatchObject({ code: 0, stderr: "" });
  return JSON.parse(told.stdout) as RunReport;
}

await describeWith("kafka", "waybill verify on a Kafka whose groups wait for members, as they do where nothing is set", () => {
  let server: KafkaServer;
  let admin: Admin;
  beforeAll(async () => {
    server = await startKafka({ settings: { "group.initial.rebalance.delay.ms": 3_000 } });
    admin = new Admin({ clientId: "test", bootstrapBrokers: [server.url().replace("kafka://", "")] });
  });
  afterAll(async () => {
    await admin.close();
    await server[Symbol.asyncDispose]();
  });
  const groups = async (): Promise<readonly string[]> => [...(await admin.listGroups()).keys()];

  test("finds everything, and leaves no topic and no group", async () => {
    const report = await verify(server.url());
    expect(report).toMatchObject({ held: true, left: null });
    expect(report.counts).toMatchObject({ published: report.counts.events, effects: report.counts.events });
    expect(await groups()).toEqual([]);
    expect(await admin.listTopics()).toEqual([]);
  });

  test("leaves no group when it is stopped either, though its members could not leave", async () => {
    const args = ["verify", "--store", "sqlite:./a.db", "--broker", server.url(), "--minutes", "5"];
    const { child, result } = await start(args, { cwd: folder });
    await expect.poll(groups, { timeout: 60_000 }).toContainEqual(expect.stringMatching(/^verify_/));
    child.kill("SIGTERM");
    const told = await result;
    expect(told, told.stderr).toMatchObject({ code: 1, signal: null });
    expect(told.stderr).not.toContain("could not be removed");
    expect(await groups()).toEqual([]);
  });
});

await describeWith("nats", "waybill verify on NATS", () => {
  test("leaves no stream, and with them no consumer", async () => {
    await using server = await startNats();
    expect(await verify(server.url())).toMatchObject({ held: true, left: null });
    const streams = await rawNats(server.url(), (_, manager) => manager.streams.list().next());
    expect(streams).toEqual([]);
  });

  test.for([
    ["*.events", false],
    ["*.events.dead", false],
    [">", true],
  ] as const)(
    "refuses where a stream of the user's takes %s, before anything is made, and leaves it as it was",
    async ([subject, no_ack]) => {
      await using server = await startNats();
      await rawNats(server.url(), (_, manager) => manager.streams.add({ name: "AUDIT", subjects: [subject], no_ack }));
      const told = await cli(["verify", "--store", "sqlite:./a.db", "--broker", server.url(), "--minutes", "0.05"], { cwd: folder });
      expect(told, told.stdout + told.stderr).toMatchObject({ code: 2 });
      expect(told.stderr).toContain("[UNSUPPORTED]");
      expect(told.stderr).toMatch(/stream AUDIT of nats:.* takes the subject "verify_\w+-left\.events.*an account or a server of its own/);
      expect(told.stderr).not.toContain("could not be removed");
      const streams = await rawNats(server.url(), (_, manager) => manager.streams.list().next());
      expect(streams).toMatchObject([{ config: { name: "AUDIT", subjects: [subject] }, state: { consumer_count: 0 } }]);
      const { state } = await rawNats(server.url(), (_, manager) => manager.streams.info("AUDIT", { subjects_filter: ">" }));
      // What takes everything takes what the server is asked, and says, too.
      expect(Object.keys(state.subjects ?? {}).filter((kept) => /verify_|^(?!(\$JS|_INBOX)\.)/.test(kept))).toEqual([]);
      expect(readdirSync(folder)).toEqual([]);
    },
  );

  test("removes all that it can: what is gone already is done, and what is refused is told and keeps nothing else", async () => {
    const place = { store: "sqlite:./a.db", run: "verify_0" };
    const [first, second, third, fourth] = topicsOf({ ...place, broker: "" }).flatMap((topic) => [topic, deadTopicOf(topic)]);
    const topics = [first!, second!, third!, fourth!];
    const denied = [first!, third!].map((topic) => `"$JS.API.STREAM.DELETE.${streamName(topic)}"`).join(", ");
    const user = `{ user: someone, password: something, permissions: { publish: { deny: [${denied}] } } }`;
    await using server = await startNats({ settings: `authorization { users: [${user}] }\nno_auth_user: someone` });
    await using opened = openRunBroker(accessTo(), { ...place, broker: server.url() });
    await opened.provision(topics, []);
    await rawNats(server.url(), (_, manager) => manager.streams.delete(streamName(second!)));
    const failure = await opened.remove(topics, []).then(
      () => "",
      (error: Error) => error.message,
    );
    for (const topic of topics) expect(failure.includes(streamName(topic)), topic).toBe(topic === first || topic === third);
    const left = await rawNats(server.url(), (_, manager) => manager.streams.list().next());
    expect(left.map(({ config }) => config.name).sort()).toEqual([streamName(first!), streamName(third!)].sort());
  });
});

await describeWith("rabbitmq", "waybill verify on RabbitMQ", () => {
  test("leaves no queue and no exchange", async () => {
    await using server = await startRabbitmq();
    const listed = async (): Promise<readonly string[]> => {
      const lists = [await server.control("list_queues", "name"), await server.control("list_exchanges", "name")];
      return lists.flatMap((list) => list.split("\n")).sort();
    };
    // On a busy machine a list may come empty; the server's own exchanges are in every other one.
    let before: readonly string[] = [];
    await expect.poll(async () => (before = await listed()), { timeout: 60_000 }).toContain("amq.topic");
    expect(await verify(server.url())).toMatchObject({ held: true, left: null });
    let after: readonly string[] = [];
    await expect.poll(async () => (after = await listed()), { timeout: 60_000 }).toContain("amq.topic");
    expect(after).toEqual(before);
  });
});
