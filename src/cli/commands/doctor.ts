import type { Adapter } from "../../contracts/adapter.ts";
import type { EventRecord } from "../../contracts/operator.ts";
import { systemClock, withDeadline } from "../../core/clock.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import { unknown } from "../../core/finding.ts";
import { DEFAULT_ROUTE, routeOf, topicOf, type Route } from "../../relay/route.ts";
import { settings } from "../config.ts";
import { encryption } from "../encryption.ts";
import { foundOf, messageSize, report, topicsKnown, type Found } from "../findings.ts";
import type { OpenedBroker, OpenedStore } from "../open.ts";
import { count } from "../output.ts";
import { command, flag } from "../parse.ts";
import { brokerFlag, brokerPlace, managementFlag, managementPlace, storeFlag, storePlace } from "../places.ts";
import type { Terminal } from "../terminal.ts";
import { brokerUrl, storeUrl, type Named } from "../url.ts";
import { brokerOf, storeOf } from "./shared.ts";

const never = new AbortController().signal;
/** For everything that a store or a broker is asked. */
const patienceMs = 30_000;
/** Of the newest events, from whose routes topics are known. */
const lookedAt = 200;

export const doctor = command({
  name: "doctor",
  summary: "Reads live settings of the store and the broker, and names the promise that each bad one breaks. Changes nothing.",
  flags: {
    ...storeFlag,
    ...brokerFlag,
    topics: flag.value("A,B", "topics to look at on the broker (default: those of the newest events)", settings.topics),
    route: flag.value("TEMPLATE", "the topic of an event (default: {aggregate_type|lower}.events)", settings.route),
    ...managementFlag,
  },
  examples: [
    "waybill doctor --store sqlite:./app.db --broker embedded:./broker.db",
    "waybill doctor --store sqlite:./app.db",
    "waybill doctor --broker embedded:./broker.db --topics order.events --json",
  ],
  async run(terminal, values) {
    const { config, out } = terminal;
    const [storeText, brokerText] = [storePlace(terminal, values), brokerPlace(terminal, values)];
    const [withStore, withBroker] = [storeText !== undefined, brokerText !== undefined];
    if (!withStore && !withBroker) throw new WaybillError("USAGE", "waybill doctor needs --store URL, --broker URL or both");
    for (const name of ["topics", "route", "management", "management-file"] as const) {
      if (values[name] !== undefined && !withBroker)
        throw new WaybillError("USAGE", `--${name} needs --broker URL, which is asked about it`);
    }
    const route = routeOf(values.route ?? config.route ?? DEFAULT_ROUTE);
    await using broker = withBroker ? brokerOf(terminal, values, false, managementPlace(terminal, values)) : null;
    await using opened = withStore ? await storeOf(terminal, values, false, false) : null;
    const ofStore = opened === null ? [] : await examineStore(opened);
    const topics = values.topics ?? config.topics ?? (opened === null || !isMigrated(ofStore) ? [] : await recentTopics(opened, route));
    let lost: Error | null = null;
    const unreached = (error: unknown): readonly Found[] => {
      if (opened === null) throw error;
      lost = asError(error); // after what is known of the store
      return [unknown("connection", null, lost.message)].map(foundOf("broker"));
    };
    const onTheWay = [
      ...(storeText === undefined ? [] : wayTo("store", storeUrl(storeText, terminal.adapters), terminal.env)),
      ...(brokerText === undefined ? [] : wayTo("broker", brokerUrl(brokerText, terminal.adapters), terminal.env)),
    ];
    const findings = [...ofStore, ...onTheWay, ...(broker === null ? [] : await examineBroker(broker, topics).catch(unreached))];
    const of = (verdict: Found["verdict"]): readonly Found[] => findings.filter((finding) => finding.verdict === verdict);
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

function wayTo(of: "store" | "broker", url: Named<Adapter>, env: Terminal["env"]): readonly Found[] {
  const finding = encryption(url, env);
  return finding === null ? [] : [foundOf(of)(finding)];
}

async function examineStore({ store }: OpenedStore): Promise<readonly Found[]> {
  return ((await store.examine?.([], never)) ?? []).map(foundOf("store"));
}

/** The sink knows its largest message once it has been connected. */
async function examineBroker({ sink }: OpenedBroker, topics: readonly string[]): Promise<readonly Found[]> {
  const own = await withDeadline(systemClock, patienceMs, never, (signal) => sink.examine(topics, signal));
  return [...own.map(foundOf("broker")), ...[messageSize(sink.can.maxBytes), topicsKnown(topics)].map(foundOf("path"))];
}

const isMigrated = (found: readonly Found[]): boolean =>
  found.some(({ setting, verdict }) => setting === "schema version" && verdict === "good");

/** Where a relay would publish what was added last. An event without a topic is the relay's to tell; a role that may not read has none. */
async function recentTopics({ store }: OpenedStore, route: Route): Promise<readonly string[]> {
  const events = await store.operator.list({ limit: lookedAt }).catch(() => []);
  const topics = events.flatMap((event) => {
    try {
      return [topicOf(route, envelopeOf(event))];
    } catch {
      return [];
    }
  });
  return [...new Set(topics)].sort();
}

/** A large payload is not in a list; no template looks at it. */
const envelopeOf = ({ payload, ...event }: EventRecord): Envelope => ({ ...event, data: Buffer.from(payload ?? "") });

function unsafe(bads: readonly Found[]): WaybillError {
  const named = bads.map(({ of, setting, breaks }) => `${of} ${setting} (${breaks})`).join(", ");
  return new WaybillError("UNSAFE_SETTING", `${count(bads.length, "setting breaks", "settings break")} a promise: ${named}`);
}
