import { tmpdir } from "node:os";
import {
  DiscardPolicy,
  jetstreamManager,
  RetentionPolicy,
  StorageType,
  type JetStreamManager,
  type StreamConfig,
} from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, expect, test } from "vitest";
import { nats } from "../../src/brokers/nats/index.ts";
import { isAtLeast, type Finding } from "../../src/core/finding.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startNats, type NatsServer } from "../servers/nats.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;
const second = 1e9;

async function examine(url: string, topics: readonly string[]): Promise<readonly Finding[]> {
  await using broker = nats({ url });
  return await broker.examine(topics, never);
}

const users = `
accounts {
  A { jetstream: enabled, users: [
    { user: all, password: s3cret }
    { user: relay, password: s3cret, permissions: {
      publish: ["order.>", "$JS.API.STREAM.NAMES", "$JS.API.STREAM.INFO.*"], subscribe: ["_INBOX.>"] } }
    { user: writer, password: s3cret, permissions: { publish: ["order.>"], subscribe: ["_INBOX.>"] } }
  ] }
  B { users: [{ user: plain, password: s3cret }] }
}`;

await describeWith("nats", "waybill doctor on NATS", () => {
  let server: NatsServer;
  /** What a server before 2.10 cannot do. */
  let always: readonly string[] = [];
  const as = (user: string): string => server.url().replace("nats://", `nats://${user}:s3cret@`);
  const flushing = (stream: string): readonly string[] => always.map((bad) => bad.replace("STREAM", stream));

  beforeAll(async () => {
    server = await startNats({ settings: users });
    if (!isAtLeast(server.version, "2.10")) always = ["sync_interval of stream STREAM L"];
    await using broker = nats({ url: as("all") });
    await broker.provision(["order.events"]);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  /** The official client, with nothing of ours in between. */
  const managed = async (work: (streams: JetStreamManager["streams"]) => Promise<unknown>): Promise<void> => {
    const nc = await connect({ port: server.port, user: "all", pass: "s3cret" });
    await work((await jetstreamManager(nc)).streams).finally(() => nc.close());
  };

  test("nothing is bad of what provision makes but what the server itself cannot do", async () => {
    expect(badOf(await examine(as("all"), ["order.events"]))).toEqual(flushing("order_events"));
    const args = ["doctor", "--broker", as("all"), "--topics", "order.events"];
    const { code, stdout, stderr } = await inProcess(args, { cwd: tmpdir() });
    expect(code).toBe(always.length);
    expect(stdout).toContain("duplicate_window of stream order_events  2m\n");
    expect(stdout + stderr).not.toContain("s3cret");
  });

  test.each<[what: string, config: Partial<StreamConfig>, bad: string]>([
    ["a stream in memory", { storage: StorageType.Memory }, "storage L"],
    ["a stream that drops what nobody asked for", { retention: RetentionPolicy.Interest }, "retention L"],
    ["a queue", { retention: RetentionPolicy.Workqueue }, "retention L"],
    ["a stream that drops the oldest", { discard: DiscardPolicy.Old, max_msgs: 100 }, "discard L"],
    ["a stream that drops the oldest of a subject", { max_msgs_per_subject: 1 }, "discard L"],
    ["messages that stay for an hour", { max_age: 3_600 * second }, "max_age L"],
    ["copies that are forgotten early", { duplicate_window: 5 * second }, "duplicate_window D"],
    ["small messages", { max_msg_size: 1_000 }, "max_msg_size L"],
    ["a stream that acknowledges nothing", { no_ack: true }, "no_ack L"],
  ])("%s is found, and nothing else", async (_, config, bad) => {
    const name = `planted_${bad.replace(" ", "_")}`;
    await managed((streams) => streams.add({ discard: DiscardPolicy.New, ...config, name, subjects: [`${name}.events`] }));
    const [setting, letters] = bad.split(" ") as [string, string];
    expect(badOf(await examine(as("all"), [`${name}.events`])).filter((found) => !flushing(name).includes(found))).toEqual([
      `${setting} of stream ${name} ${letters}`,
    ]);
    await managed((streams) => streams.delete(name));
  });

  test("a topic without a stream is found", async () => {
    expect(badOf(await examine(as("all"), ["no.events"]))).toEqual(["stream of no.events L"]);
  });

  test("an account without JetStream is found", async () => {
    expect(badOf(await examine(as("plain"), ["order.events"]))).toEqual(["jetstream L"]);
  });

  test("a server that takes less than an outbox adds is found", async () => {
    await using small = await startNats({ settings: "max_payload: 100000" });
    const { code, stdout } = await inProcess(["doctor", "--broker", small.url()], { cwd: tmpdir() });
    expect(code).toBe(1);
    expect(stdout).toMatch(/^1 bad setting, 1 unknown, 3 good\.\n\nbad\n {2}path: largest message = 100000 bytes, breaks L \(no loss\)\n/);
  });

  test("a relay's rights are enough, and what less may not ask is unknown", async () => {
    expect(badOf(await examine(as("relay"), ["order.events"]))).toEqual(flushing("order_events"));
    const findings = await examine(as("writer"), ["order.events"]);
    expect(badOf(findings)).toEqual([]);
    expect(findings.filter(({ verdict }) => verdict === "unknown").map(({ setting }) => setting)).toEqual([
      "jetstream",
      "stream of order.events",
    ]);
  });
});
