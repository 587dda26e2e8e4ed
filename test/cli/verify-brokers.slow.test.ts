import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { Admin } from "@platformatic/kafka";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import type { Report } from "../../src/cli/verify/report.ts";
import { raw as rawNats } from "../brokers/nats.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { startNats } from "../servers/nats.ts";
import { startRabbitmq } from "../servers/rabbitmq.ts";
import { cli, start } from "./build.ts";

let folder: string;
beforeEach(() => void (folder = mkdtempSync(join(tmpdir(), "waybill-verify-brokers-"))));
afterEach(() => rmSync(folder, { recursive: true, force: true }));

async function verify(broker: string): Promise<Report> {
  const args = ["verify", "--store", "sqlite:./a.db", "--broker", broker, "--minutes", "0.1", "--seed", "4", "--json"];
  const told = await cli(args, { cwd: folder });
  expect(told, told.stdout + told.stderr).toMatchObject({ code: 0, stderr: "" });
  return JSON.parse(told.stdout) as Report;
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
});

await describeWith("rabbitmq", "waybill verify on RabbitMQ", () => {
  test("leaves no queue and no exchange", async () => {
    await using server = await startRabbitmq();
    const listed = async (): Promise<readonly string[]> =>
      Promise.all([server.control("list_queues", "name"), server.control("list_exchanges", "name")]);
    const before = await listed();
    expect(await verify(server.url())).toMatchObject({ held: true, left: null });
    expect(await listed()).toEqual(before);
  });
});
