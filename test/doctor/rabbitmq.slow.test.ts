import { tmpdir } from "node:os";
import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { rabbitmq, type RabbitmqOptions } from "../../src/brokers/rabbitmq/index.ts";
import type { Finding } from "../../src/core/finding.ts";
import { raw } from "../brokers/rabbitmq.ts";
import { until } from "../cli/build.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;
const topic = "order.events";
const queue = "shop.order.events";
const ours = { "x-queue-type": "classic", "x-single-active-consumer": true, "x-overflow": "reject-publish" };

await describeWith("rabbitmq", "waybill doctor on RabbitMQ", () => {
  let server: RabbitmqServer;

  const examine = async (options: Partial<RabbitmqOptions> = {}, topics = [topic]): Promise<readonly Finding[]> => {
    await using broker = rabbitmq({ url: server.url(), management: server.management, ...options });
    return await broker.examine(topics, never);
  };
  const unknownOf = (findings: readonly Finding[]): readonly string[] =>
    findings.filter(({ verdict }) => verdict === "unknown").map(({ setting }) => setting);

  const api = async (method: string, path: string, body?: object): Promise<void> => {
    const { username, password, host } = new URL(server.management);
    const authorization = `Basic ${Buffer.from(`${username}:${password}`).toString("base64")}`;
    const options = { method, headers: { authorization, "content-type": "application/json" } };
    const { status } = await fetch(`http://${host}/api/${path}`, { ...options, ...(body && { body: JSON.stringify(body) }) });
    expect(status, path).toBeLessThan(300);
  };
  /** Until the end of the test. */
  const policy = async (kind: "policies" | "operator-policies", pattern: string, definition: object, applied: string): Promise<void> => {
    await api("PUT", `${kind}/%2F/planted`, { pattern, definition, "apply-to": applied });
    onTestFinished(() => api("DELETE", `${kind}/%2F/planted`));
  };
  /** A queue of another topic, made by hand and bound as it should be; what is bad of it. */
  const byHand = async (name: string, options: object): Promise<readonly string[]> => {
    const own = `shop.${name}.events`;
    await raw(server.url(), async (channel) => {
      await channel.assertQueue(own, { durable: true, arguments: ours, ...options });
      await channel.bindQueue(own, "waybill", `${name}.events`);
    });
    onTestFinished(() => raw(server.url(), async (channel) => void (await channel.deleteQueue(own))));
    return badOf(await examine({}, [`${name}.events`]));
  };

  beforeAll(async () => {
    server = await startRabbitmq({ management: true });
    await using broker = rabbitmq({ url: server.url() });
    await broker.provision([topic], ["shop", "audit"]);
  });
  afterAll(() => server?.[Symbol.asyncDispose]());

  test("nothing is bad of what provision makes, and only what no server tells is unknown", async () => {
    const findings = await examine();
    expect(badOf(findings)).toEqual([]);
    expect(unknownOf(findings)).toEqual(["max_message_size"]);
    const args = ["doctor", "--broker", server.url(), "--management", server.management, "--topics", topic, "--json"];
    const { code, stdout } = await inProcess(args, { cwd: tmpdir() });
    expect([code, JSON.parse(stdout)]).toEqual([0, expect.objectContaining({ broker: "rabbitmq", bad: 0, unknown: 1 })]);
  });

  test.each<[what: string, definition: object, setting: string, value: string]>([
    ["a queue that drops the oldest", { "max-length": 9, overflow: "drop-head" }, "max-length", "max-length 9, overflow drop-head"],
    ["one that does by size", { "max-length-bytes": 99, overflow: "drop-head" }, "max-length", "max-length-bytes 99, overflow drop-head"],
    ["messages that go by age", { "message-ttl": 60_000 }, "message-ttl", "60000 ms"],
    ["a queue that goes by age", { expires: 600_000 }, "expires", "600000 ms"],
    ["messages that go after some deliveries", { "delivery-limit": 3 }, "delivery-limit", "3"],
  ])("%s by a policy is found, and nothing else", async (_, definition, setting, value) => {
    await policy("policies", "^shop\\.", definition, "queues");
    const findings = await examine();
    expect(badOf(findings)).toEqual([`${setting} of queue ${queue} L`]);
    expect(findings.find(({ verdict }) => verdict === "bad")).toMatchObject({ value });
  });

  test("a queue that refuses at its limit is good, since provision has it refuse", async () => {
    await policy("policies", "^shop\\.", { "max-length": 9 }, "queues");
    const findings = await examine();
    expect(badOf(findings)).toEqual([]);
    expect(findings.find(({ setting }) => setting === `max-length of queue ${queue}`)).toMatchObject({
      value: "max-length 9, overflow reject-publish",
    });
  });

  test("an operator's policy is found too", async () => {
    await policy("operator-policies", "^shop\\.", { "message-ttl": 60_000 }, "queues");
    expect(badOf(await examine())).toEqual([`message-ttl of queue ${queue} L`]);
  });

  test("a queue that lost its binding is found while another takes the topic, and the topic when none does", async () => {
    await raw(server.url(), (channel) => channel.unbindQueue(queue, "waybill", topic));
    expect(badOf(await examine())).toEqual([`binding of queue ${queue} L`]);
    await raw(server.url(), (channel) => channel.bindQueue(queue, "waybill", topic));
    expect(badOf(await examine())).toEqual([]);
    expect(badOf(await examine({}, ["no.events"]))).toEqual(["queues of no.events L"]);
  });

  test("a classic queue is as good as another on a server that stands alone", async () => {
    expect(await byHand("classic", {})).toEqual([]);
  });

  test("queues by hand: one that goes with the server or with its reader, and one with many readers, are found", async () => {
    expect(await byHand("passing", { durable: false })).toEqual(["durable of queue shop.passing.events L"]);
    expect(await byHand("leaving", { autoDelete: true })).toEqual(["durable of queue shop.leaving.events L"]);
    expect(await byHand("shared", { arguments: { "x-queue-type": "classic" } })).toEqual([
      "x-single-active-consumer of queue shop.shared.events O",
    ]);
    expect(await byHand("limited", { arguments: { ...ours, "x-queue-type": "quorum", "x-delivery-limit": 2 } })).toEqual([
      "delivery-limit of queue shop.limited.events L",
    ]);
  });

  test("an alternate exchange is found, by a policy and by an argument", async () => {
    await policy("policies", "^waybill$", { "alternate-exchange": "amq.fanout" }, "exchanges");
    expect(badOf(await examine())).toEqual(["alternate-exchange of waybill L"]);
    await raw(server.url(), (channel) => channel.assertExchange("other", "topic", { alternateExchange: "amq.fanout" }));
    expect(badOf(await examine({ exchange: "other" }, []))).toEqual(["alternate-exchange of other L"]);
  });

  test("an exchange that is not there, of another kind or not durable is found", async () => {
    await raw(server.url(), (channel) => channel.assertExchange("passing", "topic", { durable: false }));
    for (const exchange of ["none", "amq.fanout", "passing"])
      expect(badOf(await examine({ exchange }, [])), exchange).toEqual([`exchange ${exchange} L`]);
  });

  test("a server that is short of memory, and takes no messages, is found", async () => {
    onTestFinished(async () => {
      await server.control("set_vm_memory_high_watermark", "0.9");
      await until(async () => badOf(await examine()).length === 0, 30_000);
    });
    await server.control("set_vm_memory_high_watermark", "0.00001");
    await until(async () => badOf(await examine()).length > 0, 30_000);
    const findings = await examine();
    expect(badOf(findings)).toEqual([expect.stringMatching(/^alarms of node waybill-\d+@localhost V$/)]);
    expect(findings.find(({ verdict }) => verdict === "bad")).toMatchObject({ value: "memory" });
  });

  test("what a user may not see is unknown, and no secret is told", async () => {
    const as = async (name: string, tags: string): Promise<Partial<RabbitmqOptions> & { readonly url: string }> => {
      await api("PUT", `users/${name}`, { password: "s3cret", tags });
      await api("PUT", `permissions/%2F/${name}`, { configure: "", write: "^waybill$", read: "" });
      return {
        url: server.url().replace("guest:guest", `${name}:s3cret`),
        management: server.management.replace("guest:guest", `${name}:s3cret`),
      };
    };
    await policy("policies", "^shop\\.", { "message-ttl": 60_000 }, "queues");
    const planted = [`message-ttl of queue ${queue} L`];
    const all = await examine(await as("doctor", "monitoring"));
    expect([badOf(all), unknownOf(all)]).toEqual([planted, ["max_message_size"]]);
    const less = await examine(await as("guard", "management"));
    const nodes = ["alarms", "network partitions", "type of queue audit.order.events", `type of queue ${queue}`];
    expect([badOf(less), unknownOf(less)]).toEqual([planted, ["max_message_size", ...nodes]]);
    const { url, management } = await as("relay", "");
    const findings = await examine({ url, management: management! });
    expect([badOf(findings), unknownOf(findings)]).toEqual([[], ["max_message_size", "policies, bindings and alarms"]]);
    const { code, stdout, stderr } = await inProcess(["doctor", "--broker", url, "--management", management!, "--topics", topic], {
      cwd: tmpdir(),
    });
    expect(code).toBe(0);
    expect(stdout + stderr).not.toContain("s3cret");
  });
});
