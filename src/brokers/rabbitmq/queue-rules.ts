import { bad, good, isAtLeast, unknown, type Finding } from "../../core/finding.ts";
import type { Answers, Arguments, NodeAnswers, PageAnswers, QueueAnswers } from "./answers.ts";
import { routes } from "./management.ts";
import { definitionOf } from "./policies.ts";

export interface QueueScene extends Pick<Answers, "exchange" | "version"> {
  readonly page: PageAnswers;
  readonly topic: string;
  readonly nodes: readonly NodeAnswers[] | null;
}

/** A queue of the topic: `consumer.topic`. */
export function judgeQueue(queue: QueueAnswers, scene: QueueScene): readonly Finding[] {
  const definition = definitionOf(scene.page.policies, "queue", queue.name, queue.type);
  const fixed = [binding(queue, scene), kept(queue), copies(queue, scene), single(queue)];
  if (definition instanceof Error) return [...fixed, unknown(`policy of queue ${queue.name}`, null, `${definition.message}.`)];
  return [...fixed, length(queue, definition), ...ages(queue, definition), deliveries(queue, definition, scene)];
}

const named = (what: string, { name }: QueueAnswers): string => `${what} of queue ${name}`;

function binding(queue: QueueAnswers, { page, topic, exchange }: QueueScene): Finding {
  const setting = named("binding", queue);
  const bound = page.bindings.some(({ key, destination }) => destination === queue.name && routes(key, topic));
  if (bound) return good(setting, topic, "It takes the topic.");
  const consumer = queue.name.slice(0, -topic.length - 1);
  const why = `Nothing of ${topic} reaches it, and while another queue takes the topic RabbitMQ returns no error`;
  return bad(
    setting,
    "none",
    "L",
    `${why}: run waybill migrate --broker … --topics ${topic} --consumers ${consumer} (exchange ${exchange}).`,
  );
}

function kept(queue: QueueAnswers): Finding {
  const setting = named("durable", queue);
  const wrong = [
    ...(queue.durable ? [] : ["not durable"]),
    ...(queue.auto_delete ? ["auto-delete"] : []),
    ...(queue.exclusive ? ["exclusive"] : []),
  ];
  if (wrong.length === 0) return good(setting, "true", "It stays when the server restarts, and when no consumer reads it.");
  return bad(setting, wrong.join(", "), "L", "It goes with the server, or with its last reader: delete it, and run waybill migrate.");
}

function copies(queue: QueueAnswers, { nodes }: QueueScene): Finding {
  const setting = named("type", queue);
  const { type, members } = queue;
  if (nodes === null) return unknown(setting, type, "How many nodes there are is not known: allow this user to see them (monitoring).");
  if (nodes.length <= 1) return good(setting, type, "The server stands alone: what its disk loses is lost.");
  if (type !== "quorum") {
    const why = `One node of ${nodes.length} has it, and takes it along when it is lost`;
    return bad(setting, type, "L", `${why}: delete it when it is empty, and run waybill migrate for a quorum queue.`);
  }
  const value = `quorum on ${members?.length ?? 0} of ${nodes.length} nodes`;
  if ((members?.length ?? 0) >= 3) return good(setting, value, "The others have what one node loses.");
  return bad(setting, value, "L", "A node that is lost takes events along, or stops the queue: have three members (rabbitmq-queues grow).");
}

function single(queue: QueueAnswers): Finding {
  const setting = named("x-single-active-consumer", queue);
  if (queue.arguments["x-single-active-consumer"] === true) return good(setting, "true", "One subscriber at a time reads it, in order.");
  return bad(
    setting,
    "false",
    "O",
    "Two subscribers share its events out, and reorder them: delete it when it is empty, and run waybill migrate.",
  );
}

/** What a queue does at its limit: a policy decides for a quorum queue, the queue's own argument for a classic one. */
function length(queue: QueueAnswers, policy: Arguments): Finding {
  const setting = named("max-length", queue);
  const limits = ["max-length", "max-length-bytes"].flatMap((name) => {
    const value = policy[name] ?? queue.arguments[`x-${name}`];
    return value === undefined ? [] : [`${name} ${String(value)}`];
  });
  if (limits.length === 0) return good(setting, "none", "It takes what comes.");
  const own = queue.arguments["x-overflow"];
  const overflow = String((queue.type === "quorum" ? (policy["overflow"] ?? own) : (own ?? policy["overflow"])) ?? "drop-head");
  const value = `${limits.join(", ")}, overflow ${overflow}`;
  if (overflow !== "drop-head") return good(setting, value, "When it is full it refuses, and events wait.");
  return bad(setting, value, "L", "At the limit the oldest events go unread: set overflow to reject-publish, or lift the limit.");
}

function ages(queue: QueueAnswers, policy: Arguments): readonly Finding[] {
  const rules = [
    ["message-ttl", "RabbitMQ drops events that no subscriber has read by then"],
    ["expires", "The queue goes with all that is in it when no subscriber is there for so long"],
  ] as const;
  return rules.map(([name, why]) => {
    const value = policy[name] ?? queue.arguments[`x-${name}`];
    if (value === undefined) return good(named(name, queue), "none", "Nothing goes by age.");
    return bad(named(name, queue), `${String(value)} ms`, "L", `${why}: take it out of the policy.`);
  });
}

function deliveries(queue: QueueAnswers, policy: Arguments, { version }: QueueScene): Finding {
  const setting = named("delivery-limit", queue);
  if (queue.type !== "quorum") return good(setting, "none", "A classic queue has none.");
  const usual = isAtLeast(version, "4.0") ? 20 : undefined;
  const value = policy["delivery-limit"] ?? queue.arguments["x-delivery-limit"] ?? usual;
  if (value === undefined || Number(value) < 0) return good(setting, "none", "An event is delivered as often as it takes.");
  const why = "An event goes that was delivered so often, as when its subscribers crash or restart";
  return bad(setting, String(value), "L", `${why}: set delivery-limit to -1 by a policy (before RabbitMQ 4: take it out).`);
}
