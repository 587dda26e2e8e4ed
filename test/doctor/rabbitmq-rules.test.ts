import { expect, test } from "vitest";
import type { Answers, Arguments, NodeAnswers, PageAnswers, QueueAnswers } from "../../src/brokers/rabbitmq/answers.ts";
import { judge } from "../../src/brokers/rabbitmq/examine.ts";
import { page, queue, rabbitmq } from "./recorded.ts";
import { suite, type Case } from "./suite.ts";

const paged = (change: Partial<PageAnswers>): Partial<Answers> => ({ page: { ...page, ...change } });
const queued = (change: Partial<QueueAnswers>): Partial<Answers> => paged({ queues: [{ ...queue, ...change }] });
const [node, ...others] = page.nodes as readonly NodeAnswers[];
const noded = (change: Partial<NodeAnswers>): Partial<Answers> => paged({ nodes: [{ ...node!, ...change }, ...others] });
const ruled = (definition: Arguments, kind = "queues", pattern = "^shop"): Partial<Answers> =>
  paged({ policies: [{ name: "p", pattern, "apply-to": kind, priority: 0, definition, operator: false }] });
const onQueue = (what: string, letters: string): readonly string[] => [`${what} of queue shop.order.events ${letters}`];

const ofRabbitmq: readonly Case<Answers>[] = [
  ["an old server", { version: "3.7.28" }, ["server version O"]],
  ["one that is not tested", { version: "3.9.1" }, []],
  ["no exchange", { exchangeThere: false }, ["exchange waybill L"]],
  ["an exchange that sends to everybody", paged({ exchange: { type: "fanout", durable: true, arguments: {} } }), ["exchange waybill L"]],
  ["an exchange that goes with the server", paged({ exchange: { type: "topic", durable: false, arguments: {} } }), ["exchange waybill L"]],
  ["a server without memory", noded({ mem_alarm: true }), ["alarms of node rabbit@a V"]],
  ["a server whose disk is full", noded({ disk_free_alarm: true }), ["alarms of node rabbit@a V"]],
  ["a node that is down", noded({ running: false }), ["alarms of node rabbit@a V"]],
  ["nodes that do not see each other", noded({ partitions: ["rabbit@b"] }), ["network partitions LO"]],
  [
    "an exchange beside ours",
    paged({ exchange: { type: "topic", durable: true, arguments: { "alternate-exchange": "lost" } } }),
    ["alternate-exchange of waybill L"],
  ],
  ["one by a policy", ruled({ "alternate-exchange": "lost" }, "exchanges", "^waybill$"), ["alternate-exchange of waybill L"]],
  ["a topic without queues", paged({ queues: [], bindings: [] }), ["queues of order.events L"]],
  ["a queue that lost its binding", paged({ bindings: [{ key: "#", destination: "audit" }] }), onQueue("binding", "L")],
  ["a queue that goes with the server", queued({ durable: false }), onQueue("durable", "L")],
  ["a queue that goes with its reader", queued({ auto_delete: true }), onQueue("durable", "L")],
  ["a queue of one connection", queued({ exclusive: true }), onQueue("durable", "L")],
  ["a classic queue in a cluster", queued({ type: "classic" }), onQueue("type", "L")],
  ["a classic queue on a server that stands alone", paged({ nodes: [node!], queues: [{ ...queue, type: "classic" }] }), []],
  ["a quorum queue of one member", queued({ members: ["rabbit@a"] }), onQueue("type", "L")],
  ["a queue with many readers", queued({ arguments: {} }), onQueue("x-single-active-consumer", "O")],
  ["a queue that drops the oldest", ruled({ "max-length": 9, overflow: "drop-head" }), onQueue("max-length", "L")],
  ["one that does by size", ruled({ "max-length-bytes": 9, overflow: "drop-head" }), onQueue("max-length", "L")],
  ["one that refuses at its limit", ruled({ "max-length": 9 }), []],
  ["overflow without a limit", ruled({ overflow: "drop-head" }), []],
  ["messages that go by age", ruled({ "message-ttl": 1_000 }), onQueue("message-ttl", "L")],
  ["a queue that goes by age", ruled({ expires: 1_000 }), onQueue("expires", "L")],
  ["messages that go after some deliveries", ruled({ "delivery-limit": 3 }), onQueue("delivery-limit", "L")],
  ["as RabbitMQ 4 does of itself", { version: "4.0.5" }, onQueue("delivery-limit", "L")],
  ["RabbitMQ 4, told otherwise", { version: "4.0.5", ...ruled({ "delivery-limit": -1 }) }, []],
];

suite("RabbitMQ", "RabbitMQ", rabbitmq, judge, ofRabbitmq);

test("what AMQP alone does not tell is unknown, and never good", () => {
  const withoutPage = judge({ ...rabbitmq, page: null }).filter(({ verdict }) => verdict === "unknown");
  expect(withoutPage.map(({ setting }) => setting)).toEqual(["max_message_size", "policies, bindings and alarms"]);
});
