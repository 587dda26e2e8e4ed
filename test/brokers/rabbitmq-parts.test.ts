import { describe, expect, test } from "vitest";
import { createAcks } from "../../src/brokers/rabbitmq/acks.ts";
import type { Answers, Arguments, PageAnswers, QueueAnswers } from "../../src/brokers/rabbitmq/answers.ts";
import { AmqpRefusal } from "../../src/brokers/rabbitmq/driver.ts";
import { judge } from "../../src/brokers/rabbitmq/examine.ts";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { routes } from "../../src/brokers/rabbitmq/management.ts";
import { checkTopic, queueName } from "../../src/brokers/rabbitmq/names.ts";
import { resultOf } from "../../src/brokers/rabbitmq/result.ts";
import { queueArguments } from "../../src/brokers/rabbitmq/topology.ts";
import { pageOf, settingsOf } from "../../src/brokers/rabbitmq/url.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";

const code = (expected: string): Error => expect.objectContaining({ code: expected }) as Error;

describe("rabbitmq: the URL", () => {
  test("names nodes, who connects, the virtual host, and whether it is encrypted", () => {
    expect(settingsOf("amqp://localhost")).toEqual({
      ...{ addresses: [{ host: "localhost", port: 5672 }], user: "guest", password: "guest", vhost: "/", tls: null },
      shown: "amqp://localhost:5672",
    });
    expect(settingsOf("amqps://us%40er:p%3Aw:d@a:1,[::1]:2,b/my%2Fhost")).toEqual({
      addresses: [
        { host: "a", port: 1 },
        { host: "::1", port: 2 },
        { host: "b", port: 5671 },
      ],
      ...{ user: "us@er", password: "p:w:d", vhost: "my/host", tls: {}, shown: "amqps://a:1/my%2Fhost" },
    });
    for (const path of ["", "/", "/%2f"]) expect(settingsOf(`amqp://h${path}`).vhost).toBe("/");
    expect(settingsOf("amqp://u@h")).toMatchObject({ user: "u", password: "" });
  });

  test("that cannot be used is refused, without its secrets", () => {
    const wrong = [
      ...["", "amqp:", "amqp://", "http://host", "amqp://host:99999", "amqp://a b", "amqp://host/a/b", "amqp://u:%zz@host", "amqp://a,,b"],
      ...["amqp://u:hush@host?heartbeat=1", "amqp://u:hush@host?ca=x", "amqps://u:hush@h?cert=x", "amqps://u:hush@h?ca=/no/such/file"],
    ];
    for (const url of wrong) {
      expect(() => rabbitmq({ url }), url).toThrow(code("BAD_URL"));
      expect(() => rabbitmq({ url }), url).not.toThrow(/hush/);
    }
    for (const management of ["host:15672", "amqp://u:hush@h", "http://u:hush@h?x=1", "http://u:hush@h?ca=x"]) {
      expect(() => rabbitmq({ url: "amqp://h", management }), management).toThrow(code("BAD_URL"));
      expect(() => rabbitmq({ url: "amqp://h", management }), management).not.toThrow(/hush/);
    }
    expect(pageOf("https://u:p%40@h:1/below")).toMatchObject({ user: "u", password: "p@", tls: {}, origin: new URL("https://h:1/below/") });
    expect(pageOf("http://h:15672")).toMatchObject({ user: null, password: null, tls: null });
  });

  test("and other options are checked", () => {
    const url = "amqp://h";
    for (const wrong of [
      { url: 5 },
      { url, exchange: "" },
      { url, exchange: "x".repeat(250) },
      { url, queueType: "stream" },
      { url, maxBytes: 0 },
    ])
      expect(() => rabbitmq(wrong as never), JSON.stringify(wrong)).toThrow(code("INVALID_OPTION"));
    expect(() => rabbitmq({ url, queuetype: "classic" } as never)).toThrow(/did you mean queueType/);
    const broker = rabbitmq({ url });
    expect(() => broker.receive({ consumer: "c", topics: ["a.*"], prefetch: 1 }, new AbortController().signal)).toThrow(
      code("INVALID_OPTION"),
    );
    const subscription = { consumer: "c", topics: ["a"], prefetch: 60_000, waiting: 6_000 };
    expect(() => broker.receive(subscription, new AbortController().signal)).toThrow(/no more than 65535/);
  });
});

describe("rabbitmq: names", () => {
  test("a topic is a routing key that is no pattern", () => {
    for (const topic of ["order.events", "a", "Größe.🚚", "a*b.#c", "a..b", "x".repeat(255)]) checkTopic(topic, "ROUTE_FAILED");
    for (const topic of ["", "*", "#", "a.*", "#.b", "a.#.b", "a\nb", "é".repeat(128), 7 as never])
      expect(() => checkTopic(topic, "ROUTE_FAILED"), String(topic)).toThrow(code("ROUTE_FAILED"));
  });

  test("no two pairs of consumer and topic share a queue", () => {
    expect(queueName("inventory", "order.events")).toBe("inventory.order.events");
    const pairs = [
      ["a", "b.c"],
      ["a.b", "c"],
      ["a%2Eb", "c"],
      ["a%252Eb", "c"],
    ] as const;
    expect(new Set(pairs.map(([consumer, topic]) => queueName(consumer, topic))).size).toBe(pairs.length);
    for (const consumer of ["", "a\0b", "x".repeat(250)]) expect(() => queueName(consumer, "order.events")).toThrow(code("INVALID_OPTION"));
  });

  test("a binding's key matches as a topic exchange has it", () => {
    const yes = [
      ["a.b", "a.b"],
      ["a.*", "a.b"],
      ["#", "a.b.c"],
      ["a.#", "a"],
      ["#.c", "a.b.c"],
      ["a.#.c", "a.c"],
      ["*.*", "a.b"],
    ] as const;
    const no = [
      ["a.b", "a"],
      ["a.*", "a"],
      ["*", "a.b"],
      ["a.#.c", "a.b"],
      ["", "a"],
    ] as const;
    for (const [key, topic] of yes) expect(routes(key, topic), `${key} ${topic}`).toBe(true);
    for (const [key, topic] of no) expect(routes(key, topic), `${key} ${topic}`).toBe(false);
  });

  test("queues refuse rather than drop, have one reader, and on RabbitMQ 4 no limit of deliveries", () => {
    const quorum = { exchange: "waybill", queueType: "quorum" } as const;
    const common = { "x-single-active-consumer": true, "x-overflow": "reject-publish", "x-dead-letter-exchange": "waybill.skipped" };
    expect(queueArguments(quorum, "3.10.8")).toEqual({ ...common, "x-queue-type": "quorum" });
    expect(queueArguments(quorum, "4.1.0")).toEqual({ ...common, "x-queue-type": "quorum", "x-delivery-limit": -1 });
    expect(queueArguments({ ...quorum, queueType: "classic" }, "4.1.0")).toEqual({ ...common, "x-queue-type": "classic" });
  });
});

describe("rabbitmq: what an answer means", () => {
  const message = { topic: "order.events", source: "/s", envelope: sampleEvent() };
  const of = (fate: Parameters<typeof resultOf>[0]) => resultOf(fate, message, "amqp://h:5672", "waybill");
  const lost = (number: number, how: { publishing?: boolean; alone?: boolean; fresh?: boolean } = {}) => {
    const { publishing = true, alone = false, fresh = false } = how;
    return of({ is: "lost", error: new AmqpRefusal(number, "the server's words", publishing), alone, fresh });
  };
  const destination = { status: "refused", blame: "destination", retryable: true };

  test("stored, returned and not taken", () => {
    expect(of({ is: "stored" })).toEqual({ status: "stored" });
    expect(of({ is: "returned", why: "NO_ROUTE (312)" })).toMatchObject(destination);
    expect(of({ is: "nacked" })).toMatchObject(destination);
  });

  test("without the exchange, nothing was provisioned, and the command that does it is named with the virtual host", () => {
    const refused = new AmqpRefusal(404, "NOT_FOUND - no exchange 'waybill' in vhost 'shop'", true);
    const result = resultOf({ is: "lost", error: refused, alone: true, fresh: false }, message, "amqp://h:5672/shop", "waybill");
    expect(result).toMatchObject(destination);
    const told = "error" in result ? result.error.message : "";
    expect(told).toMatch(/no exchange .*: run waybill migrate --broker amqp:\/\/h:5672\/shop --topics order\.events --consumers NAME,…$/);
  });

  test("a channel that ended: certain for a message that was alone on it, unknown otherwise", () => {
    for (const number of [403, 404]) expect(lost(number, { alone: true }), String(number)).toMatchObject(destination);
    for (const number of [406, 311])
      expect(lost(number, { alone: true })).toMatchObject({
        status: "refused",
        blame: "event",
        retryable: false,
        error: { code: "MESSAGE_TOO_LARGE" },
      });
    for (const number of [404, 406, 311, 501, 541])
      expect(lost(number)).toMatchObject({ status: "unknown", error: { code: "PUBLISH_UNKNOWN" } });
    for (const number of [320, 501, 504, 541]) expect(lost(number, { alone: true })).toMatchObject({ status: "unknown" });
    expect(lost(406, { alone: true, publishing: false })).toMatchObject({ status: "unknown" });
    expect(lost(403)).toMatchObject({ status: "unknown" });
    expect(lost(403, { fresh: true }), "rights are looked at before the first message").toMatchObject(destination);
    expect(of({ is: "lost", error: new Error("ECONNRESET"), alone: true, fresh: true })).toMatchObject({ status: "unknown" });
  });
});

describe("rabbitmq: acknowledgements", () => {
  const sent: string[] = [];
  const acks = createAcks({ ack: (tag, multiple) => void sent.push(`${tag}${multiple ? "+" : ""}`) });
  const notes = Array.from({ length: 9 }, (_, i) => acks.note(i + 1));
  const given = async (...tags: readonly number[]): Promise<readonly string[]> => {
    for (const tag of tags) notes[tag - 1]!();
    await Promise.resolve();
    return sent.splice(0);
  };

  test("are one where they leave no gap, never name what was acknowledged before, and never pass one that is missing", async () => {
    expect(await given(3)).toEqual(["3"]);
    expect(await given(2, 1)).toEqual(["2+"]);
    expect(await given(1, 2, 3)).toEqual([]);
    expect(await given(4, 7, 5, 6, 9)).toEqual(["7+", "9"]);
    expect(await given(8)).toEqual(["8"]);
  });
});

describe("rabbitmq: what doctor finds", () => {
  const queue: QueueAnswers = {
    ...{ name: "shop.order.events", type: "quorum", durable: true, auto_delete: false, exclusive: false, members: ["a", "b", "c"] },
    arguments: { "x-queue-type": "quorum", "x-single-active-consumer": true, "x-overflow": "reject-publish" },
  };
  const node = (name: string) => ({ name, running: true, mem_alarm: false, disk_free_alarm: false, partitions: [] });
  const page: PageAnswers = {
    nodes: [node("a"), node("b"), node("c")],
    exchange: { type: "topic", durable: true, arguments: {} },
    bindings: [{ key: "order.events", destination: "shop.order.events" }],
    queues: [queue, { ...queue, name: "shop.other.events", durable: false }],
    policies: [],
  };
  const answers: Answers = {
    version: "3.10.8",
    exchange: "waybill",
    queueType: "quorum",
    topics: ["order.events"],
    exchangeThere: true,
    page,
  };
  const found = (change: Partial<PageAnswers>, more: Partial<Answers> = {}) => judge({ ...answers, page: { ...page, ...change }, ...more });
  const told = (...args: Parameters<typeof found>): string[] =>
    found(...args)
      .filter(({ setting, verdict }) => verdict !== "good" && setting !== "max_message_size") // which the server does not tell
      .map(({ setting, verdict, breaks }) => `${setting.replace("shop.order.events", "Q")} ${verdict} ${breaks}`.trim());
  const policy = (definition: object, more: object = {}) => ({
    policies: [
      { name: "p", pattern: "^shop", "apply-to": "queues", priority: 0, definition: definition as Arguments, operator: false, ...more },
    ],
  });

  test("nothing on a healthy cluster", () => {
    expect(told({})).toEqual([]);
    expect(judge(answers).every(({ why, value, verdict }) => why !== "" && (value !== null || verdict === "unknown"))).toBe(true);
  });

  test("each thing that breaks a promise", () => {
    expect(told({}, { version: "3.6.1" })).toEqual(["server version bad O"]);
    expect(told({}, { version: "3.9.1" })).toEqual(["server version unknown"]);
    expect(told({}, { version: "4.0.5" })).toEqual(["delivery-limit of queue Q bad L"]);
    expect(told({ queues: [{ ...queue, arguments: { ...queue.arguments, "x-delivery-limit": -1 } }] }, { version: "4.0.5" })).toEqual([]);
    expect(told({}, { exchangeThere: false })).toEqual(["exchange waybill bad L"]);
    expect(told({}, { exchangeThere: null })).toEqual(["exchange waybill unknown"]);
    expect(told({ exchange: { type: "fanout", durable: true, arguments: {} } })).toEqual(["exchange waybill bad L"]);
    expect(told({ exchange: { type: "topic", durable: true, arguments: { "alternate-exchange": "x" } } })).toEqual([
      "alternate-exchange of waybill bad L",
    ]);
    expect(
      told({
        nodes: [
          { ...node("a"), mem_alarm: true },
          { ...node("b"), disk_free_alarm: true },
          { ...node("c"), running: false },
        ],
      }),
    ).toEqual([...["alarms of node a bad V", "alarms of node b bad V", "alarms of node c bad V"]]);
    expect(told({ nodes: [{ ...node("a"), partitions: ["b"] }, node("b"), node("c")] })).toEqual(["network partitions bad LO"]);
    expect(told({ bindings: [] })).toEqual(["queues of order.events bad L", "binding of queue Q bad L"]);
    expect(told({ bindings: [{ key: "order.#", destination: "tap" }] })).toEqual(["binding of queue Q bad L"]);
    expect(told({ queues: [{ ...queue, type: "classic" }] })).toEqual(["type of queue Q bad L"]);
    expect(told({ queues: [{ ...queue, type: "classic" }], nodes: [node("a")] })).toEqual([]);
    expect(told({ queues: [{ ...queue, members: ["a"] }] })).toEqual(["type of queue Q bad L"]);
    expect(told({ queues: [{ ...queue, durable: false }] })).toEqual(["durable of queue Q bad L"]);
    expect(told({ queues: [{ ...queue, arguments: { "x-overflow": "reject-publish" } }] })).toEqual([
      "x-single-active-consumer of queue Q bad O",
    ]);
  });

  test("policies, by their patterns, kinds and priorities, and the operator's above them", () => {
    expect(told(policy({ "max-length": 5 }))).toEqual([]);
    expect(told(policy({ "max-length": 5, overflow: "drop-head" }))).toEqual(["max-length of queue Q bad L"]);
    // A classic queue's own argument is stronger than a policy.
    expect(
      told({ ...policy({ "max-length": 5, overflow: "drop-head" }), queues: [{ ...queue, type: "classic" }], nodes: [node("a")] }),
    ).toEqual([]);
    expect(told({ ...policy({ "max-length": 5 }), queues: [{ ...queue, arguments: { "x-single-active-consumer": true } }] })).toEqual([
      "max-length of queue Q bad L",
    ]);
    expect(told(policy({ "message-ttl": 5, expires: 9 }))).toEqual(["message-ttl of queue Q bad L", "expires of queue Q bad L"]);
    expect(told(policy({ "delivery-limit": 5 }))).toEqual(["delivery-limit of queue Q bad L"]);
    expect(told(policy({ expires: 9 }, { "apply-to": "exchanges" }))).toEqual([]);
    expect(told(policy({ expires: 9 }, { "apply-to": "quorum_queues" }))).toEqual(["expires of queue Q bad L"]);
    expect(told(policy({ expires: 9 }, { pattern: "^other" }))).toEqual([]);
    expect(told(policy({ expires: 9 }, { pattern: "(?<a" }))).toEqual(
      ["alternate-exchange of waybill unknown", "policy of queue Q unknown"].slice(1),
    );
    const [low] = policy({ expires: 9 }).policies;
    const high = { ...low!, name: "high", priority: 9, definition: {} };
    expect(told({ policies: [low!, high] })).toEqual([]);
    expect(told({ policies: [high, { ...low!, operator: true }] })).toEqual(["expires of queue Q bad L"]);
  });

  test("what it may not see is unknown, with the way out", () => {
    expect(told({ nodes: new Error("not allowed"), policies: new Error("not allowed") })).toEqual([
      ...[
        "alarms unknown",
        "network partitions unknown",
        "alternate-exchange of waybill unknown",
        "type of queue Q unknown",
        "policy of queue Q unknown",
      ],
    ]);
    expect(judge({ ...answers, page: null }).at(-1)).toMatchObject({
      verdict: "unknown",
      why: expect.stringMatching(/--management/) as string,
    });
    expect(judge({ ...answers, page: new Error("it refuses") }).at(-1)).toMatchObject({ verdict: "unknown", why: "it refuses." });
  });
});
