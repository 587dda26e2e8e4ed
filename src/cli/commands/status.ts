import type { Watch } from "../../contracts/housekeeping.ts";
import type { LetterGroup } from "../../contracts/letters.ts";
import type { Status } from "../../contracts/operator.ts";
import { systemClock } from "../../core/clock.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import type { State } from "../../core/event.ts";
import { inWords } from "../../core/in-words.ts";
import type { WatchWarning } from "../../core/path-events.ts";
import { count, shorten } from "../../core/text.ts";
import { defaultThresholds, tell, warningsOf } from "../../relay/housekeeping/warnings.ts";
import { fields, paragraphs, table, type Cell, type Output } from "../output.ts";
import { duration } from "../duration.ts";
import { command, flag } from "../parse.ts";
import { asked, brokerFlag, storeFlag, type Placed } from "../places.ts";
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
    consumer: flag.text("NAME", "with --topic and --broker: how many messages this consumer is behind"),
    topic: flag.text("T", "the topic of that consumer"),
    ...brokerFlag,
    check: flag.switch("say only what needs attention, and exit with 1 if something does; for cron"),
    "max-age": flag.value(
      "TIME",
      "how long an event or a topic may wait before --check fails (default: 5m)",
      duration(1, 365 * 86_400_000),
    ),
  },
  examples: [
    "waybill status --store sqlite:./app.db",
    "waybill status --store sqlite:./app.db --json",
    "waybill status --store sqlite:./app.db --check --max-age 2m",
    "waybill status --store sqlite:./app.db --consumer shipping --topic order.events --broker embedded:./broker.db",
  ],
  async run(terminal, values) {
    if (values["max-age"] !== undefined && !values.check) usage("--max-age is for --check: add it");
    await using opened = await storeOf(terminal, values);
    const current = await opened.store.operator.status();
    const { watch } = current;
    const warnings = watch === undefined ? [] : warningsOf(watch, defaultThresholds);
    // A role that may not read letters may read the rest.
    const read = await opened.store.letters.groups({}).catch((error: unknown) => {
      if (isWaybillError(error, "STORE_READ_ONLY")) return error;
      throw error;
    });
    const letters = read instanceof Error ? [] : read;
    const unread = read instanceof Error ? read.message : null;
    const lag = await lagOf(terminal, values);
    const verdicts = verdictsOf(current, letters, systemClock.now(), values["max-age"] ?? defaultMaxAgeMs);
    const json = {
      verdicts,
      ...current,
      letters: unread === null ? letters : null,
      ...(lag !== null && { lag }),
      ...(watch !== undefined && { watch: { ...watch, warnings } }),
    };
    // Cron mails whatever is printed: a check of what is well prints nothing.
    if (terminal.out.json || !values.check)
      terminal.out.answer(json, () => page(terminal.out, current, { verdicts, warnings, letters, unread, lag }));
    else if (unread !== null) terminal.out.line(`letters were not read: ${unread}`);
    const failing = verdicts.filter((verdict) => verdict.failing);
    if (values.check && failing.length > 0) throw new WaybillError("NEEDS_ATTENTION", failing.map(({ text }) => text).join("; "));
  },
});

const defaultMaxAgeMs = 5 * 60_000;

interface Lag {
  readonly consumer: string;
  readonly topic: string;
  /** Null where the broker cannot tell, or the consumer has no place in the topic yet. */
  readonly messages: number | null;
}

const lagMs = 10_000;

async function lagOf(terminal: Terminal, values: Placed<"broker"> & Record<"consumer" | "topic", string | undefined>): Promise<Lag | null> {
  const { consumer, topic } = values;
  const broker = asked("broker", values);
  if (consumer === undefined && topic === undefined && broker === undefined) return null;
  if (consumer === undefined || topic === undefined) usage("how far a consumer is behind takes --consumer, --topic and --broker");
  await using opened = await brokerOf(terminal, values, false);
  const signal = AbortSignal.timeout(lagMs);
  await opened.sink.connect(signal);
  return { consumer, topic, messages: (await opened.sink.lag?.(topic, signal, consumer)) ?? null };
}

function behind({ consumer, topic, messages }: Lag): string {
  if (messages === null) return `${consumer} has no place in ${topic} yet, or the broker cannot tell how far behind it is`;
  return `${consumer} is ${count(messages, "message")} behind on ${topic}`;
}

interface Beside {
  readonly verdicts: readonly StatusVerdict[];
  readonly warnings: readonly WatchWarning[];
  /** Of the consumers whose inboxes are in this database. */
  readonly letters: readonly LetterGroup[];
  /** Why letters were not read. */
  readonly unread: string | null;
  readonly lag: Lag | null;
}

export function page(out: Output, status: Status, { verdicts, warnings, letters, unread, lag }: Beside): string[] {
  const { states, estimated, oldestUnpublishedMs, oldest, relays, lanes, holds, breakers, window, dead, schemaVersion, watch } = status;
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
      shorten(why, 100),
    ]),
    ...listed(["aggregate", "hold", "since", "why"], holds.list, ({ aggregateType, aggregateId, releasing, since, why }) => [
      `${aggregateType} ${aggregateId}`,
      releasing ? "releasing" : "held",
      since,
      shorten(why, 100),
    ]),
    ...(holds.list.length > 0 && unlisted > 0 ? [[`… and ${unlisted} more`]] : []),
    ...listed(["dead", "oldest", "error"], dead, ({ events, oldest, error }) => [events, oldest, shorten(error, 100)]),
    ...(lag === null ? [] : [[behind(lag)]]),
    ...(unread === null ? [] : [[`letters were not read: ${unread}`]]),
    ...listed(["letters", "redriven", "oldest", "consumer", "topic", "error"], letters, (group) => [
      ...[group.letters, group.redriven, group.oldest, group.consumer, group.topic],
      shorten(group.error, 100),
    ]),
    ...(watch === undefined ? [] : [watched(out, watch)]),
    ...(warnings.length === 0 ? [] : [warnings.map(({ text }) => `warning: ${text}`)]),
  ]);
}

const shown = ({ states, estimated }: Status, state: State): Cell => (estimated.includes(state) ? about(states[state]) : states[state]);

/** Only as many digits as an estimate can mean. */
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

function inBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${Number((bytes / 1024 ** step).toFixed(1))} ${units[step]!}`;
}
