import type { Watch } from "../../contracts/housekeeping.ts";
import type { ConsumerState } from "../../contracts/consumers.ts";
import type { LetterGroup } from "../../contracts/letters.ts";
import type { Status, TailStatus } from "../../contracts/operator.ts";
import { systemClock } from "../../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import type { State } from "../../core/event.ts";
import { inWords } from "../../core/in-words.ts";
import type { WatchWarning } from "../../core/path-events.ts";
import { maxTold } from "../../core/reason.ts";
import { count, inBytes, shorten } from "../../core/text.ts";
import { defaultThresholds, tell, warningsOf } from "../../relay/housekeeping/warnings.ts";
import { countedMarks } from "../../stores/kit/consumers.ts";
import { behind, isKnown, nobody, retried, type Lag } from "../consumer.ts";
import { knownConsumers } from "../../observe/known.ts";
import { askKnown, type Knowledge } from "../known.ts";
import type { CommandStore } from "../open.ts";
import { fields, paragraphs, table, type Cell, type Output } from "../output.ts";
import { duration } from "../duration.ts";
import { command, flag } from "../parse.ts";
import { asked, brokerFlag, brokerPlace, storeFlag, type Placed } from "../places.ts";
import { whole } from "../read.ts";
import type { Terminal } from "../terminal.ts";
import { usage } from "../usage.ts";
import { verdictsOf, type StatusVerdict } from "../verdict.ts";
import { brokerOf, storeOf } from "./shared.ts";

export const status = command({
  name: "status",
  summary:
    "Says what needs attention, then shows events by state, the oldest that wait, relays and their lanes, holds, destinations, dead events, letters of consumers, and what makes the tables grow.",
  flags: {
    ...storeFlag,
    consumer: flag.text(
      "NAME",
      "also what this consumer has applied, retries and could not apply; with --topic and --broker how far behind it is",
    ),
    topic: flag.text("T", "the topic of that consumer"),
    ...brokerFlag,
    check: flag.switch("say only what needs attention, and exit with 1 if something does; for cron"),
    "max-age": flag.value(
      "TIME",
      "how long an event or a topic may wait before --check fails (default: 5m)",
      duration(1, 365 * 86_400_000),
    ),
    "max-lag": flag.value(
      "N",
      "how many messages a consumer that runs may be behind before --check fails (default: 10000)",
      whole(0, 1_000_000_000),
    ),
  },
  examples: [
    "waybill status --store sqlite:./app.db",
    "waybill status --store sqlite:./app.db --broker embedded:./broker.db",
    "waybill status --store sqlite:./app.db --json",
    "waybill status --store sqlite:./app.db --check --max-age 2m",
    "waybill status --store sqlite:./app.db --consumer shipping --topic order.events --broker embedded:./broker.db",
  ],
  async run(terminal, values) {
    for (const name of ["max-age", "max-lag"] as const)
      if (values[name] !== undefined && !values.check) usage(`--${name} is for --check: add it`);
    await using opened = await storeOf(terminal, values);
    const current = await opened.store.operator.status();
    const { watch } = current;
    const warnings = watch === undefined ? [] : warningsOf(watch, defaultThresholds);
    const inbox = await inboxOf(opened, values.consumer);
    const { consumers, named, groups: letters, unread } = inbox;
    const known = await knownOf(terminal, values, consumers);
    const lag = lagIn(known, values);
    const limits = { maxAgeMs: values["max-age"] ?? defaultMaxAgeMs, maxLag: values["max-lag"] ?? defaultMaxLag };
    const verdicts = verdictsOf(current, { ...inbox, known }, systemClock.now(), limits);
    const json = {
      verdicts,
      ...current,
      letters: unread === null ? letters : null,
      consumers: unread !== null ? null : named === null ? consumers : [named, ...consumers.filter((of) => of.consumer !== named.consumer)],
      ...(lag !== null && { lag }),
      lags: known.consumers,
      ...(watch !== undefined && { watch: { ...watch, warnings } }),
    };
    // Cron mails all output, so a check that finds no trouble prints nothing.
    if (terminal.out.json || !values.check)
      terminal.out.answer(json, () => page(terminal.out, current, { verdicts, warnings, letters, unread, named, lag, known }));
    else if (unread !== null) terminal.out.line(`letters were not read: ${unread}`);
    const failing = verdicts.filter((verdict) => verdict.failing);
    if (values.check && failing.length > 0) throw new WaybillError("NEEDS_ATTENTION", failing.map(({ text }) => text).join("; "));
  },
});

const defaultMaxAgeMs = 5 * 60_000;
const defaultMaxLag = 10_000;

interface Asked extends Placed<"broker"> {
  readonly consumer: string | undefined;
  readonly topic: string | undefined;
}

/** A broker of the environment or the configuration that cannot be opened does not tell. One that this command line names must be there. */
async function knownOf(terminal: Terminal, values: Asked, inbox: readonly ConsumerState[]): Promise<Knowledge> {
  const { consumer, topic } = values;
  if (topic !== undefined && consumer === undefined) usage("how far a consumer is behind takes --consumer, --topic and --broker");
  const isGiven = brokerPlace(terminal, values) !== undefined;
  if (topic !== undefined && !isGiven) usage("how far a consumer is behind takes --consumer, --topic and --broker");
  const configured = { ...terminal.config.consumers };
  const named = consumer !== undefined && topic !== undefined ? { consumer, topic } : null;
  if (named !== null) configured[named.consumer] = [...new Set([...(configured[named.consumer] ?? []), named.topic])];
  const known = knownConsumers(inbox, configured);
  if (!isGiven || known.length === 0) return { consumers: known, asked: false };
  try {
    await using broker = await brokerOf(terminal, values, false);
    if (asked("broker", values) !== undefined) await broker.sink.connect(AbortSignal.timeout(connectMs));
    return { consumers: await askKnown(known, broker), asked: true, named };
  } catch (cause) {
    if (asked("broker", values) !== undefined) throw cause;
    return { consumers: known.map((each) => ({ ...each, error: asError(cause).message })), asked: true };
  }
}

const connectMs = 10_000;

function lagIn({ consumers }: Knowledge, { consumer, topic }: Asked): Lag | null {
  const found = topic === undefined ? undefined : consumers.find((of) => of.consumer === consumer && of.topic === topic);
  return found === undefined ? null : { consumer: found.consumer, topic: found.topic, messages: found.messages };
}

const none: InboxRead = { consumers: [], named: null, groups: [], unread: null };

interface InboxRead {
  readonly consumers: readonly ConsumerState[];
  /** The consumer that was asked for. */
  readonly named: ConsumerState | null;
  /** Its letters by cause. */
  readonly groups: readonly LetterGroup[];
  /** Why the inbox was not read. */
  readonly unread: string | null;
}

/** A role that may not read the inbox may still read the rest. */
async function inboxOf({ store: { consumers, letters } }: CommandStore, consumer: string | undefined): Promise<InboxRead> {
  try {
    const groups = await letters.groups({});
    const [named = null] = consumer === undefined ? [] : await consumers.look(consumer);
    return { consumers: await consumers.look(), named, groups, unread: null };
  } catch (error) {
    if (isWaybillError(error, "STORE_READ_ONLY")) return { ...none, unread: error.message };
    throw error;
  }
}

interface Beside {
  readonly verdicts: readonly StatusVerdict[];
  readonly warnings: readonly WatchWarning[];
  /** Letters of the consumers whose inboxes are in this database. */
  readonly letters: readonly LetterGroup[];
  /** Why letters were not read. */
  readonly unread: string | null;
  /** The consumer that was asked for. */
  readonly named: ConsumerState | null;
  readonly lag: Lag | null;
  readonly known: Knowledge;
}

export function page(out: Output, status: Status, { verdicts, warnings, letters, unread, named, lag, known }: Beside): string[] {
  const { states, estimated, oldestUnpublishedMs, oldest, relays, lanes, holds, breakers, window, dead, schemaVersion, tail, watch } =
    status;
  const listed = <T>(titles: readonly string[], items: readonly T[], row: (item: T) => readonly Cell[]): string[][] =>
    items.length === 0 ? [] : [table(out, titles, items.map(row))];
  const blocked = estimated.includes("BLOCKED") ? `${about(holds.blocked)} blocked events` : count(holds.blocked, "blocked event");
  const unlisted = holds.aggregates - holds.list.length;
  const age = (ms: number | null): string => (ms === null ? "none" : inWords(ms));
  return paragraphs([
    verdicts.map(({ text, failing }) => (failing ? out.bold(text) : text)),
    ...listed(["state", "events"], Object.keys(states) as State[], (state) => [state, shown(status, state)]),
    fields(out, [
      ["oldest unpublished", age(oldestUnpublishedMs)],
      ["oldest claimable", age(oldest.claimableMs)],
      ["oldest blocked", age(oldest.blockedMs)],
      ["oldest dead", age(oldest.deadMs)],
      ["window", `${count(window.events, "event")}, ${count(window.suspects, "suspect")}`],
      ["lanes", `${lanes.owned} owned, ${lanes.free} free of ${lanes.total}`],
      ["holds", `${count(holds.aggregates, "aggregate")}, ${blocked}`],
      ...(tail === undefined ? [] : [["log", reader(tail)] as const]),
      ["schema version", schemaVersion],
    ]),
    ...listed(["relay", "lease", "lanes", "window", "lease until"], relays, (relay) => [
      relay.relay,
      relay.live ? "live" : "lapsed",
      relay.lanes.length,
      `${relay.window} of ${relay.windowLimit}`,
      relay.expiresAt,
    ]),
    ...listed(["waiting for", "aggregates", "since", "why"], breakers, ({ destination, aggregates, since, why }) => [
      destination,
      aggregates,
      since,
      shorten(why, maxTold),
    ]),
    ...listed(["aggregate", "hold", "since", "why"], holds.list, ({ aggregateType, aggregateId, releasing, since, why }) => [
      `${aggregateType} ${aggregateId}`,
      releasing ? "releasing" : "held",
      since,
      shorten(why, maxTold),
    ]),
    ...(holds.list.length > 0 && unlisted > 0 ? [[`… and ${unlisted} more`]] : []),
    ...listed(["dead", "oldest", "error"], dead, ({ events, oldest, error }) => [events, oldest, shorten(error, maxTold)]),
    ...(named === null ? [] : [consumerLines(named)]),
    ...(lag === null ? [] : [[behind(lag)]]),
    ...listed(["consumer", "topic", "behind", "runs", "last seen"], known.consumers, ({ consumer, topic, messages, running, seenAt }) => [
      ...[consumer, topic, messages ?? "unknown", running === null ? "unknown" : running ? "yes" : "no", seenAt ?? "unknown"],
    ]),
    ...(unread === null ? [] : [[`letters were not read: ${unread}`]]),
    ...listed(["letters", "redriven", "oldest", "consumer", "topic", "error"], letters, (group) => [
      ...[group.letters, group.redriven, group.oldest, group.consumer, group.topic],
      shorten(group.error, maxTold),
    ]),
    ...(watch === undefined ? [] : [watched(out, watch)]),
    ...(warnings.length === 0 ? [] : [warnings.map(({ text }) => `warning: ${text}`)]),
  ]);
}

/** Who finds events how. */
export function reader({ relay, floor }: TailStatus): string {
  const read = floor === 0n ? "" : `; events of the log up to ${floor} are published`;
  return relay === null ? `no relay reads it: relays poll${read}` : `${relay} reads it${read}`;
}

function consumerLines(named: ConsumerState): readonly string[] {
  const { consumer, letters, handled } = named;
  if (!isKnown(named)) return [nobody(consumer)];
  const sum = letters.reduce((all, each) => all + each.letters, 0);
  const applied = `${handled === countedMarks ? "at least " : ""}${count(handled ?? 0, "event")}`;
  return [`${consumer} has ${count(sum, "letter")}, and marks of ${applied} that it has applied.`, ...retried(named, systemClock.now())];
}

const shown = ({ states, estimated }: Status, state: State): Cell => (estimated.includes(state) ? about(states[state]) : states[state]);

/** An estimate gets three significant digits. */
const about = (n: number): string => `about ${new Intl.NumberFormat("en-US", { maximumSignificantDigits: 3 }).format(n)}`;

function watched(out: Output, { bytes, deadRows, writer, horizon, unseen }: Watch): string[] {
  const holder = (found: Watch["writer"]): string => (found === null ? "none" : found === "unknown" ? found : tell(found));
  const entries: [string, Cell][] = [
    ["size", bytes === "unknown" ? bytes : inBytes(bytes)],
    ["dead rows", deadRows],
    ["oldest writer", holder(writer)],
    ["oldest snapshot", holder(horizon)],
  ];
  if (unseen !== null) entries.push(["not seen", unseen]);
  return fields(out, entries);
}
