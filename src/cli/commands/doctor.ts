import { asError, WaybillError } from "../../core/errors.ts";
import { unknown } from "../../core/finding.ts";
import { count, visible } from "../../core/text.ts";
import { examineBroker, examineConsumer, examineLog, examineStore, examineWay, foundOf, type OwnedFinding } from "../../doctor/examine.ts";
import type { Route } from "../../relay/route.ts";
import { deadTopicNames } from "../../subscriber/dead-letter-topic.ts";
import { lagOf } from "../consumer.ts";
import type { CommandBroker, CommandStore } from "../open.ts";
import { paragraphs, table, type Output } from "../output.ts";
import { command, flag } from "../parse.ts";
import { brokerFlag, brokerPlace, logFlag, managementFlag, managementPlace, storeFlag, storePlace } from "../places.ts";
import { names } from "../read.ts";
import { chosenRoute, routeFlag, topicFor } from "../topic.ts";
import { brokerUrl, storeUrl } from "../url.ts";
import { brokerOf, storeOf } from "./shared.ts";
import { usage } from "../usage.ts";

/** How many of the newest events are routed to find the topics. */
const lookedAt = 200;

export const doctor = command({
  name: "doctor",
  summary: "Reads live settings of the store and the broker, and names the promise that each bad one breaks. Changes nothing.",
  flags: {
    ...storeFlag,
    ...brokerFlag,
    ...logFlag,
    topics: flag.value("A,B", "topics to look at on the broker (default: those of the newest events)", names),
    ...routeFlag,
    ...managementFlag,
    consumer: flag.text("NAME", "also look at this consumer: --store is then the database of its inbox, --topics are those it reads"),
    "dead-topic": flag.text("TEMPLATE", "with --consumer: the option deadTopic of its subscriber, such as {topic}.dead"),
  },
  examples: [
    "waybill doctor --store sqlite:./app.db --broker embedded:./broker.db",
    "waybill doctor --store sqlite:./app.db",
    "waybill doctor --broker embedded:./broker.db --topics order.events --json",
    "waybill doctor --consumer shipping --dead-topic {topic}.dead --store sqlite:./app.db --broker embedded:./broker.db",
  ],
  async run(terminal, values) {
    const { config, out } = terminal;
    const [storeAt, brokerAt] = [storePlace(terminal, values), brokerPlace(terminal, values)];
    const [withStore, withBroker] = [storeAt !== undefined, brokerAt !== undefined];
    if (!withStore && !withBroker) usage("waybill doctor needs --store URL, --broker URL or both");
    for (const name of ["topics", "route", "management", "management-file"] as const) {
      if (values[name] !== undefined && !withBroker) usage(`--${name} needs --broker URL, which is asked about it`);
    }
    if (values["dead-topic"] !== undefined && (values.consumer === undefined || !withBroker))
      usage("--dead-topic needs --consumer NAME, whose letters it takes, and --broker URL, which is asked about it");
    const deadTopic = values["dead-topic"] === undefined ? null : deadTopicNames(values["dead-topic"]);
    const route = chosenRoute(config, values);
    await using broker = withBroker ? await brokerOf(terminal, values, false, managementPlace(terminal, values)) : null;
    await using opened = withStore ? await storeOf(terminal, values, false, false) : null;
    const ofStore = opened === null ? [] : await examineStore(opened.store);
    const wanted = config.mode === "tail" || config.mode === "auto";
    const ofLog = opened !== null && isMigrated(ofStore) ? await examineLog(opened.store, wanted) : [];
    const topics = values.topics ?? config.topics ?? (opened === null || !isMigrated(ofStore) ? [] : await recentTopics(opened, route));
    const deadTopics = deadTopic === null ? [] : topics.map((topic) => deadTopic(topic, values.consumer!));
    let lost: Error | null = null;
    const unreached = (error: unknown): readonly OwnedFinding[] => {
      if (opened === null) throw error;
      lost = asError(error); // thrown after the store's findings are reported
      return [unknown("connection", null, lost.message)].map(foundOf("broker"));
    };
    const ofConsumer = async (consumer: string): Promise<readonly OwnedFinding[]> => {
      const migrated = opened !== null && isMigrated(ofStore) ? opened : null;
      const unread = (error: unknown): string => asError(error).message; // the other findings are reported all the same
      const inbox = migrated === null ? null : await migrated.store.consumers.look(consumer).catch(unread);
      const places = {
        ...{ consumer, topics, state: inbox === null || typeof inbox === "string" ? null : (inbox[0] ?? null) },
        broker: broker === null || lost !== null ? null : { sink: broker.sink, lag: lagIn(broker, consumer) },
        deadTopic: deadTopic === null ? null : (topic: string) => deadTopic(topic, consumer),
      };
      return [
        ...(typeof inbox === "string" ? [unknown("inbox", null, inbox)].map(foundOf("consumer")) : []),
        ...(await examineConsumer(places)),
      ];
    };
    const { adapters, env } = terminal;
    const findings = [
      ...ofStore,
      ...ofLog,
      ...(typeof storeAt !== "string" ? [] : examineWay("store", storeAt, storeUrl(storeAt, adapters).adapter, env)),
      ...(typeof brokerAt !== "string" ? [] : examineWay("broker", brokerAt, brokerUrl(brokerAt, adapters).adapter, env)),
      ...(broker === null ? [] : await examineBroker(broker.sink, [...new Set([...topics, ...deadTopics])]).catch(unreached)),
      ...(values.consumer === undefined ? [] : await ofConsumer(values.consumer)),
    ];
    const of = (verdict: OwnedFinding["verdict"]): readonly OwnedFinding[] => findings.filter((finding) => finding.verdict === verdict);
    out.answer(
      {
        store: opened?.store.name ?? null,
        broker: broker?.sink.name ?? null,
        topics,
        bad: of("bad").length,
        unknown: of("unknown").length,
        good: of("good").length,
        findings,
      },
      () => report(out, findings),
    );
    if (lost !== null) throw lost as Error;
    if (of("bad").length > 0) throw unsafe(of("bad"));
  },
});

const lagIn =
  (broker: CommandBroker, consumer: string) =>
  async (topic: string): Promise<number | null> =>
    (await lagOf(broker, consumer, topic)).messages;

const isMigrated = (found: readonly OwnedFinding[]): boolean =>
  found.some(({ setting, verdict }) => setting === "schema version" && verdict === "good");

/** The topics of the newest events. Events that the route gives no topic are left out, and a role that may not read events finds none. */
async function recentTopics({ store }: CommandStore, route: Route): Promise<readonly string[]> {
  const events = await store.operator.list({ limit: lookedAt }).catch(() => []);
  const topics = events.flatMap((event) => topicFor(route, event).topic ?? []);
  return [...new Set(topics)].sort();
}

function unsafe(bads: readonly OwnedFinding[]): WaybillError {
  const named = bads.map(({ of, setting, breaks }) => `${of} ${setting} (${breaks})`).join(", ");
  return new WaybillError("UNSAFE_SETTING", `${count(bads.length, "setting breaks", "settings break")} a promise: ${named}`);
}

const promises: Readonly<Record<string, string>> = {
  L: "no loss",
  P: "no phantom",
  O: "order",
  E: "one effect",
  D: "few duplicates",
  I: "isolation",
  V: "nothing silent",
};

/** Bad settings come first, with the remedy. Good ones take one line each. */
function report(out: Output, found: readonly OwnedFinding[]): string[] {
  const of = (verdict: OwnedFinding["verdict"]): readonly OwnedFinding[] => found.filter((finding) => finding.verdict === verdict);
  const [bads, unknowns, goods] = [of("bad"), of("unknown"), of("good")];
  const told = ({ of: whose, setting, value, breaks, why }: OwnedFinding): string[] => {
    const broken = breaks === "" ? "" : `, breaks ${[...breaks].map((letter) => `${letter} (${promises[letter] ?? "?"})`).join(" and ")}`;
    return [`  ${whose}: ${out.bold(visible(setting))}${value === null ? "" : ` = ${visible(value)}`}${broken}`, `    ${why}`];
  };
  const section = (title: string, some: readonly OwnedFinding[]): string[][] =>
    some.length === 0 ? [] : [[out.bold(title), ...some.flatMap(told)]];
  const good = goods.map((finding) => [finding.of, finding.setting, finding.value]);
  return paragraphs([
    [[count(bads.length, "bad setting"), `${unknowns.length} unknown`, `${goods.length} good`].join(", ") + "."],
    ...section("bad", bads),
    ...section("unknown", unknowns),
    ...(good.length === 0 ? [] : [table(out, ["good", "setting", "value"], good)]),
  ]);
}
