import type { Examination } from "../../contracts/examination.ts";
import { BESIDE_PAYLOAD_BYTES, DEFAULT_MAX_PAYLOAD_BYTES } from "../../core/draft.ts";
import { bad, good, isAtLeast, unknown, type Finding } from "../../core/finding.ts";
import { readAnswers, type Answers, type Asking, type NodeAnswers, type PageAnswers } from "./answers.ts";
import type { Links } from "./link.ts";
import { routes } from "./management.ts";
import { definitionOf } from "./policies.ts";
import { judgeQueue } from "./queue-rules.ts";

export type ExaminationOptions = Omit<Asking, "connection"> & { readonly links: Links };

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
  const known = [serverVersion(answers), exchange(answers)];
  if (page === null || page instanceof Error) return [...known, largest(), unseen(page)];
  const nodes = page.nodes instanceof Error ? null : page.nodes;
  return [
    ...known,
    largest(),
    ...alarms(page),
    partitions(page),
    alternate(answers, page),
    ...answers.topics.flatMap((topic) => [
      bindings(topic, page),
      ...page.queues
        .filter(({ name }) => name.slice(name.indexOf(".") + 1) === topic) // a consumer's name has no dot there
        .flatMap((queue) => judgeQueue(queue, { ...answers, page, topic, nodes })),
    ]),
  ];
}

function serverVersion({ version }: Answers): Finding {
  const setting = "server version";
  if (isAtLeast(version, "3.10")) return good(setting, version, "3.10 or later is what Waybill is made for.");
  if (isAtLeast(version, "3.8"))
    return unknown(setting, version, "Waybill is tested with RabbitMQ 3.10 and made for later ones: upgrade it.");
  return bad(setting, version, "O", "It has no queues with a single active consumer, and no quorum queues: upgrade it to 3.10 or later.");
}

function exchange({ exchange: name, exchangeThere, topics, page }: Answers): Finding {
  const setting = `exchange ${name}`;
  const way = `run waybill migrate --broker … --topics ${topics.join(",") || "A,B"} --consumers NAME`;
  if (exchangeThere === null) return unknown(setting, null, "This user may not ask: doctor needs the rights of a relay.");
  if (!exchangeThere) return bad(setting, "none", "L", `Events wait: ${way}.`);
  const found = page === null || page instanceof Error ? null : page.exchange;
  if (found !== null && (found.type !== "topic" || !found.durable)) {
    const value = `${found.durable ? "durable" : "not durable"} ${found.type}`;
    return bad(setting, value, "L", `It must be a durable topic exchange, and goes or sends events elsewhere: delete it, and ${way}.`);
  }
  return good(setting, "there", "It takes events.");
}

/** Neither AMQP nor the management plugin tells it. */
function largest(): Finding {
  const needed = DEFAULT_MAX_PAYLOAD_BYTES + BESIDE_PAYLOAD_BYTES;
  const why = "The server does not tell it, and an event that takes more dies";
  return unknown("max_message_size", null, `${why}: see that it is ${needed} or more (rabbitmqctl environment).`);
}

function unseen(why: Error | null): Finding {
  const settings = "policies, bindings and alarms";
  if (why !== null) return unknown(settings, null, `${why.message}.`);
  return unknown(
    settings,
    null,
    "AMQP does not tell them: switch the management plugin on, and give --management http://user:password@host:15672.",
  );
}

function alarms({ nodes }: PageAnswers): readonly Finding[] {
  if (nodes instanceof Error) return [unknown("alarms", null, `${nodes.message}.`)];
  return nodes.map(({ name, running, mem_alarm, disk_free_alarm }: NodeAnswers) => {
    const setting = `alarms of node ${name}`;
    if (!running) return bad(setting, "not running", "V", "The node is down: what only it has, waits or is lost with it.");
    const on = [...(mem_alarm === true ? ["memory"] : []), ...(disk_free_alarm === true ? ["disk"] : [])];
    if (on.length === 0) return good(setting, "none", "It takes messages.");
    return bad(setting, on.join(", "), "V", "It takes no messages, and all events wait: give it more, or let consumers catch up.");
  });
}

function partitions({ nodes }: PageAnswers): Finding {
  const setting = "network partitions";
  if (nodes instanceof Error) return unknown(setting, null, `${nodes.message}.`);
  const cut = nodes.filter(({ partitions: seen = [] }) => seen.length > 0).map(({ name }) => name);
  if (cut.length === 0) return good(setting, "none", "The nodes see each other.");
  return bad(
    setting,
    cut.join(", "),
    "LO",
    "The nodes do not agree on what is in their queues: mend the network, and restart those of one side.",
  );
}

/** What it takes counts as published, since a queue has it: none of a subscriber's. */
function alternate({ exchange: name }: Answers, page: PageAnswers): Finding {
  const setting = `alternate-exchange of ${name}`;
  const definition = definitionOf(page.policies, "exchange", name, null);
  const value =
    page.exchange?.arguments["alternate-exchange"] ?? (definition instanceof Error ? undefined : definition["alternate-exchange"]);
  if (value !== undefined) {
    const why = "An event that no subscriber's queue is bound for goes there, and counts as published: remove it, so that the event waits";
    return bad(setting, String(value), "L", `${why} and is seen.`);
  }
  if (definition instanceof Error) return unknown(setting, null, `${definition.message}.`);
  return good(setting, "none", "An event that no queue is bound for comes back, and waits.");
}

function bindings(topic: string, { bindings: all }: PageAnswers): Finding {
  const setting = `queues of ${topic}`;
  const bound = all.filter(({ key }) => routes(key, topic)).map(({ destination }) => destination);
  if (bound.length > 0) return good(setting, bound.join(", "), "They take the topic.");
  return bad(setting, "none", "L", `Events for it wait: run waybill migrate --broker … --topics ${topic} --consumers NAME.`);
}
