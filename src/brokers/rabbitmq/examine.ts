import type { Examination, Finding, Rule } from "../../contracts/doctor.ts";
import { applyRules, isAtLeast, unknown } from "../../core/finding.ts";
import { judgeTested, type Tested } from "../../core/tested.ts";
import { eventBytes, migrate, rule } from "../kit/doctor.ts";
import { readAnswers, type Answers, type Asking, type PageAnswers } from "./answers.ts";
import type { Links } from "./link.ts";
import { routes } from "./management.ts";
import { definitionOf } from "./policies.ts";
import { judgeQueue, queueRules } from "./queue-rules.ts";

type ExaminationOptions = Omit<Asking, "connection"> & { readonly links: Links };

export function createExamination({ links, ...rest }: ExaminationOptions): Examination {
  return {
    async examine(topics, signal) {
      const connection = await links.consuming.open(signal);
      return judge(await readAnswers({ connection, ...rest }, topics, signal));
    },
  };
}

export function judge(answers: Answers): readonly Finding[] {
  const { page } = answers;
  const server = applyRules(serverRules, answers);
  if (page === null || page instanceof Error) return [...server, unseen(page)];
  return [
    ...server,
    ...applyRules(pageRules, { ...answers, page }),
    ...answers.topics.flatMap((topic) => [
      ...applyRules(topicRules, { topic, page }, topic),
      ...page.queues
        .filter(({ name }) => name.slice(name.indexOf(".") + 1) === topic) // a consumer's name has no dot there
        .flatMap((queue) => judgeQueue(queue, { ...answers, page, topic })),
    ]),
  ];
}

export const tested: Tested = { server: "RabbitMQ", oldest: "3.10", newest: "4.3" };

const serverRules: readonly Rule<Answers>[] = [
  rule("server version", "before 3.8; unknown before 3.10 and after 4.3", "O", "upgrade it to 3.10 or later", ({ version }, say) => {
    if (isAtLeast(version, "3.8")) return judgeTested(version, tested, say);
    return say.bad(version, "It has no queues with a single active consumer, and no quorum queues");
  }),
  rule(
    "exchange",
    "it is not there, not durable or no topic exchange",
    "L",
    migrate("…", "…"),
    ({ exchange, exchangeThere, topics, page }, say) => {
      const { good, bad, unknown } = say.as(`exchange ${exchange}`);
      const remedy = migrate(topics.join(",") || "A,B", "NAME");
      if (exchangeThere === null) return unknown(null, "This user may not ask: doctor needs the rights of a relay.");
      if (!exchangeThere) return bad("none", "Events wait", { remedy });
      const found = page === null || page instanceof Error ? null : page.exchange;
      if (found === null || (found.type === "topic" && found.durable)) return good("there", "It takes events.");
      const why = "It must be a durable topic exchange, and goes or sends events elsewhere";
      return bad(`${found.durable ? "durable" : "not durable"} ${found.type}`, why, { remedy: `delete it, and ${remedy}` });
    },
  ),
  // Neither AMQP nor the management plugin reports it.
  rule(
    "max_message_size",
    "always unknown: the server does not report it",
    "",
    `check that it is ${eventBytes} or more (\`rabbitmqctl environment\`)`,
    (_, { unknown }) => {
      const why = "The server does not tell it, and an event that takes more dies";
      return unknown(null, `${why}: see that it is ${eventBytes} or more (rabbitmqctl environment).`);
    },
  ),
];

function unseen(why: Error | null): Finding {
  const way = "AMQP does not tell them: switch the management plugin on, and give --management http://user:password@host:15672.";
  return unknown("policies, bindings and alarms", null, why === null ? way : `${why.message}.`);
}

const pageRules: readonly Rule<Answers & { readonly page: PageAnswers }>[] = [
  rule(
    "alarms",
    "a node is down, or is short of memory or disk and takes no messages",
    "V",
    "give it more, or let consumers catch up",
    ({ page: { nodes } }, say) => {
      if (nodes instanceof Error) return say.unknown(null, `${nodes.message}.`);
      return nodes.map(({ name, running, mem_alarm, disk_free_alarm }) => {
        const { good, bad } = say.as(`alarms of node ${name}`);
        if (!running) return bad("not running", "The node is down", { remedy: "start it: what only it has, waits or is lost with it" });
        const on = [...(mem_alarm === true ? ["memory"] : []), ...(disk_free_alarm === true ? ["disk"] : [])];
        if (on.length === 0) return good("none", "It takes messages.");
        return bad(on.join(", "), "It takes no messages, and all events wait");
      });
    },
  ),
  rule(
    "network partitions",
    "nodes do not see each other",
    "LO",
    "repair the network, and restart the nodes of one side",
    ({ page: { nodes } }, { good, bad, unknown }) => {
      if (nodes instanceof Error) return unknown(null, `${nodes.message}.`);
      const cut = nodes.filter(({ partitions = [] }) => partitions.length > 0).map(({ name }) => name);
      if (cut.length === 0) return good("none", "The nodes see each other.");
      return bad(cut.join(", "), "The nodes do not agree on what is in their queues");
    },
  ),
  rule(
    "alternate-exchange",
    "the exchange has one, by an argument or a policy: a message that no subscriber's queue takes counts as published",
    "L",
    "remove it, so that the event waits and is seen",
    ({ exchange, page }, say) => {
      const { good, bad, unknown } = say.as(`alternate-exchange of ${exchange}`);
      const policy = definitionOf(page.policies, "exchange", exchange, null);
      const value = page.exchange?.arguments["alternate-exchange"] ?? (policy instanceof Error ? undefined : policy["alternate-exchange"]);
      if (value !== undefined)
        return bad(String(value), "An event that no subscriber's queue is bound for goes there, and counts as published");
      if (policy instanceof Error) return unknown(null, `${policy.message}.`);
      return good("none", "An event that no queue is bound for comes back, and waits.");
    },
  ),
];

const topicRules: readonly Rule<{ readonly topic: string; readonly page: PageAnswers }>[] = [
  rule("queues", "no queue is bound for the topic", "L", migrate("…", "…"), ({ topic, page }, { good, bad }) => {
    const bound = page.bindings.filter(({ key }) => routes(key, topic)).map(({ destination }) => destination);
    if (bound.length > 0) return good(bound.join(", "), "They take the topic.");
    return bad("none", "Events for it wait", { remedy: migrate(topic, "NAME") });
  }),
];

export const rules = [...serverRules, ...pageRules, ...topicRules, ...queueRules];
