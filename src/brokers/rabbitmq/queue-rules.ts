import type { Finding, Rule } from "../../contracts/doctor.ts";
import { applyRules, isAtLeast, unknown } from "../../core/finding.ts";
import { migrate, rule } from "../kit/doctor.ts";
import type { Answers, Arguments, PageAnswers, QueueAnswers } from "./answers.ts";
import { routes } from "./management.ts";
import { definitionOf } from "./policies.ts";

export interface QueueScene extends Pick<Answers, "exchange" | "version"> {
  readonly page: PageAnswers;
  readonly topic: string;
}

type Queue = QueueScene & { readonly queue: QueueAnswers };
type Ruled = Queue & { readonly policy: Arguments };

/** A queue of the topic: `consumer.topic`. */
export function judgeQueue(queue: QueueAnswers, scene: QueueScene): readonly Finding[] {
  const policy = definitionOf(scene.page.policies, "queue", queue.name, queue.type);
  const of = `queue ${queue.name}`;
  const fixed = applyRules(ownRules, { ...scene, queue }, of);
  if (policy instanceof Error) return [...fixed, unknown(`policy of ${of}`, null, `${policy.message}.`)];
  return [...fixed, ...applyRules(policyRules, { ...scene, queue, policy }, of)];
}

const again = `delete it when it is empty, and ${migrate("…", "…")}`;

const ownRules: readonly Rule<Queue>[] = [
  rule("binding", "the queue is not bound for its topic", "L", migrate("…", "…"), ({ queue, page, topic, exchange }, { good, bad }) => {
    const bound = page.bindings.some(({ key, destination }) => destination === queue.name && routes(key, topic));
    if (bound) return good(topic, "It takes the topic.");
    const why = `Nothing of ${topic} reaches it, and while another queue takes the topic RabbitMQ returns no error`;
    return bad("none", why, { remedy: `${migrate(topic, queue.name.slice(0, -topic.length - 1))} (exchange ${exchange})` });
  }),
  rule("durable", "the queue is not durable, deletes itself or is exclusive", "L", again, ({ queue }, { good, bad }) => {
    const wrong = [
      ...(queue.durable ? [] : ["not durable"]),
      ...(queue.auto_delete ? ["auto-delete"] : []),
      ...(queue.exclusive ? ["exclusive"] : []),
    ];
    if (wrong.length === 0) return good("true", "It stays when the server restarts, and when no consumer reads it.");
    return bad(wrong.join(", "), "It goes with the server, or with its last reader");
  }),
  rule(
    "type",
    "classic in a cluster, or quorum with fewer than three members",
    "L",
    "have three members (`rabbitmq-queues grow`)",
    ({ queue: { type, members = [] }, page: { nodes } }, { good, bad, unknown }) => {
      if (nodes instanceof Error) return unknown(type, "How many nodes there are is not known: allow this user to see them (monitoring).");
      if (nodes.length <= 1) return good(type, "The server stands alone: what its disk loses is lost.");
      if (type !== "quorum")
        return bad(type, `One node of ${nodes.length} has it, and takes it along when it is lost`, {
          remedy: `${again} for a quorum queue`,
        });
      const value = `quorum on ${members.length} of ${nodes.length} nodes`;
      if (members.length >= 3) return good(value, "The others have what one node loses.");
      return bad(value, "A node that is lost takes events along, or stops the queue");
    },
  ),
  rule("x-single-active-consumer", "not set: subscribers share events out, and reorder them", "O", again, ({ queue }, { good, bad }) =>
    queue.arguments["x-single-active-consumer"] === true
      ? good("true", "One subscriber at a time reads it, in order.")
      : bad("false", "Two subscribers share its events out, and reorder them"),
  ),
];

const argument = ({ policy, queue }: Ruled, name: string): Arguments[string] => policy[name] ?? queue.arguments[`x-${name}`];

const byAge = (name: string, why: string): Rule<Ruled> =>
  rule(name, "any", "L", "take it out of the policy", (scene, { good, bad }) => {
    const value = argument(scene, name);
    return value === undefined ? good("none", "Nothing goes by age.") : bad(`${String(value)} ms`, why);
  });

const policyRules: readonly Rule<Ruled>[] = [
  // A policy decides for a quorum queue, the queue's own argument for a classic one.
  rule(
    "max-length",
    "with a limit, and overflow `drop-head`",
    "L",
    "set overflow to `reject-publish`, or lift the limit",
    (scene, { good, bad }) => {
      const { queue, policy } = scene;
      const limits = ["max-length", "max-length-bytes"].flatMap((name) => {
        const value = argument(scene, name);
        return value === undefined ? [] : [`${name} ${String(value)}`];
      });
      if (limits.length === 0) return good("none", "It takes what comes.");
      const own = queue.arguments["x-overflow"];
      const overflow = String((queue.type === "quorum" ? (policy["overflow"] ?? own) : (own ?? policy["overflow"])) ?? "drop-head");
      const value = `${limits.join(", ")}, overflow ${overflow}`;
      if (overflow !== "drop-head") return good(value, "When it is full it refuses, and events wait.");
      return bad(value, "At the limit the oldest events go unread");
    },
  ),
  byAge("message-ttl", "RabbitMQ drops events that no subscriber has read by then"),
  byAge("expires", "The queue goes with all that is in it when no subscriber is there for so long"),
  rule(
    "delivery-limit",
    "any; 20 by default from RabbitMQ 4 on",
    "L",
    "set `delivery-limit` to -1 by a policy (before RabbitMQ 4: take it out)",
    (scene, { good, bad }) => {
      if (scene.queue.type !== "quorum") return good("none", "A classic queue has none.");
      const value = argument(scene, "delivery-limit") ?? (isAtLeast(scene.version, "4.0") ? 20 : undefined);
      if (value === undefined || Number(value) < 0) return good("none", "An event is delivered as often as it takes.");
      return bad(String(value), "An event goes that was delivered so often, as when its subscribers crash or restart");
    },
  ),
];

export const queueRules = [...ownRules, ...policyRules];
