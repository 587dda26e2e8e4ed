import type { EventRecord } from "../../contracts/operator.ts";
import { WaybillError } from "../../core/errors.ts";
import { states, type Draft } from "../../core/event.ts";
import { told } from "../../core/reason.ts";
import { shorten } from "../../core/text.ts";
import { fields, paragraphs, table, type Output } from "../output.ts";
import { command, flag } from "../parse.ts";
import { storeFlag } from "../places.ts";
import { moment, oneOf, seq, whole } from "../read.ts";
import type { Terminal } from "../terminal.ts";
import { chosenRoute, routeFlag, topicFor } from "../topic.ts";
import { exactJson } from "./payload.ts";
import { given, storeOf } from "./shared.ts";
import { usage } from "../usage.ts";

export const pageFlags = {
  limit: flag.value("N", "how many to show (default 20, at most 1000)", whole(1, 1_000)),
  "before-seq": flag.value("SEQ", "only events with a lower seq: the last one of the page before", seq),
};

const list = command({
  name: "events list",
  summary: "Lists events, newest first.",
  flags: {
    ...storeFlag,
    state: flag.value("STATE", states.join(", "), (text, refuse) => oneOf(states)(text.toUpperCase(), refuse)),
    "aggregate-type": flag.text("T", "only events of this aggregate type"),
    "aggregate-id": flag.text("I", "only events of this aggregate id"),
    type: flag.text("E", "only events of this type"),
    ...pageFlags,
  },
  examples: [
    "waybill events list --store sqlite:./app.db --state FAILED",
    "waybill events list --store sqlite:./app.db --aggregate-type Order --aggregate-id 42 --json",
  ],
  async run(terminal, values) {
    await using opened = await storeOf(terminal, values);
    const filter = given({
      state: values.state,
      aggregateType: values["aggregate-type"],
      aggregateId: values["aggregate-id"],
      type: values.type,
      beforeSeq: values["before-seq"],
    });
    const events = await opened.store.operator.list({ ...filter, limit: values.limit ?? 20 });
    terminal.out.answer({ events }, () => eventTable(terminal.out, events));
  },
});

const show = command({
  name: "events show",
  summary: "Shows one event with its topic and its payload.",
  words: { shown: "ID", least: 1, most: 1 },
  flags: { ...storeFlag, ...routeFlag },
  examples: ["waybill events show 01890a5d-ac96-774b-bcce-b302099a8057 --store sqlite:./app.db"],
  async run(terminal, values, [id]) {
    await using opened = await storeOf(terminal, values);
    const event = shownEvent(await opened.store.operator.show(id!), id!);
    const found = topicFor(chosenRoute(terminal.config, values), event);
    terminal.out.answer({ topic: found.topic, ...event }, () =>
      eventPage(terminal.out, event, [["topic", found.topic ?? `none: ${found.why}`]]),
    );
  },
});

const add = command({
  name: "events add",
  summary: "Adds one event, as a service would, in a transaction of its own.",
  flags: {
    ...storeFlag,
    "aggregate-type": flag.value("T", "such as Order", anyText),
    "aggregate-id": flag.value("I", "such as 42", anyText),
    type: flag.value("E", "such as OrderPlaced", anyText),
    payload: flag.text("JSON", 'the payload, or "-" to read it from standard input'),
    id: flag.text("ID", "a UUID or ULID (default: a new UUIDv7)"),
    "event-version": flag.value("N", "default 1", whole(1, 2_147_483_647)),
    header: flag.repeated("NAME=VALUE", "a header; may be given several times"),
    "idempotency-key": flag.text("KEY", "adding twice with one key adds once"),
    "available-at": flag.value("MOMENT", "not before, such as 2030-01-31T12:00:00Z", moment),
  },
  examples: [
    `waybill events add --store sqlite:./app.db --aggregate-type Order --aggregate-id 42 --type OrderPlaced --payload '{"total":12}'`,
  ],
  async run(terminal, values) {
    const draft: Draft = {
      aggregateType: needed(values["aggregate-type"], "--aggregate-type"),
      aggregateId: needed(values["aggregate-id"], "--aggregate-id"),
      type: needed(values.type, "--type"),
      ...exactJson(await givenPayload(terminal, needed(values.payload, "--payload"))),
      headers: headers(values.header),
      ...given({
        id: values.id,
        eventVersion: values["event-version"],
        idempotencyKey: values["idempotency-key"],
        availableAt: values["available-at"],
      }),
    };
    await using opened = await storeOf(terminal, values);
    const [added] = await opened.add([draft]);
    terminal.out.answer(added, () => [
      added?.duplicate === true ? `${added.id} (this idempotency key was used before; nothing was added)` : (added?.id ?? ""),
    ]);
  },
});

export const events = [list, show, add];

/** A byte may take six characters when escaped, and a string may not have more than 512 Mi characters. */
const shownBytes = 64 * 1024 * 1024;

/** The event without a payload that cannot be shown. */
export function shownEvent(event: EventRecord | null, id: string): EventRecord {
  if (event === null) throw new WaybillError("NOT_FOUND", `there is no event ${JSON.stringify(id.slice(0, 80))}`);
  return event.payloadBytes > shownBytes ? { ...event, payload: null } : event;
}

export function eventTable(out: Output, records: readonly EventRecord[]): string[] {
  if (records.length === 0) return ["No events."];
  const rows = records.map((event) => [
    event.seq,
    event.id,
    event.state,
    `${event.aggregateType} ${event.aggregateId}`,
    event.type,
    event.createdAt,
    event.retryCount,
    shorten(event.lastError === null ? (event.hold ?? "") : told({ code: event.errorCode ?? "", error: event.lastError }), 60),
  ]);
  return table(out, ["seq", "id", "state", "aggregate", "type", "created", "failures", "error or hold"], rows);
}

/** `first` is shown above the stored fields. */
export function eventPage(out: Output, event: EventRecord, first: readonly (readonly [string, string])[] = []): string[] {
  const { payload, payloadBytes, headers: given, ...rest } = event;
  const ofHeaders = Object.entries(given).map(([name, value]) => [`header ${name}`, value] as const);
  const lines = fields(out, [...first, ...Object.entries(rest), ...ofHeaders]);
  return paragraphs([lines, [payloadText(payload, payloadBytes)]]);
}

/** More than this would push the rest of the page off the screen. */
export const shownCharacters = 4_096;

export function payloadText(payload: EventRecord["payload"], bytes: number): string {
  if (payload === null) return `${bytes} bytes, too large to show`;
  const text = typeof payload === "string" ? payload : `${bytes} bytes, base64: ${Buffer.from(payload).toString("base64")}`;
  return text.length <= shownCharacters
    ? text
    : `${shorten(text, shownCharacters)} (the beginning of ${bytes} bytes; --json has the whole payload)`;
}

/** The draft's own check reports what is wrong, also with an empty text. */
function anyText(text: string): string {
  return text;
}

function needed(value: string | undefined, name: string): string {
  if (value === undefined) usage(`waybill events add needs ${name}`);
  return value;
}

async function givenPayload(terminal: Terminal, given: string): Promise<string> {
  if (given !== "-") return given;
  try {
    return new TextDecoder("utf-8", { fatal: true, ignoreBOM: true }).decode(await terminal.stdin());
  } catch (cause) {
    return usage("the payload on standard input is not UTF-8 text", cause);
  }
}

function headers(pairs: readonly string[]): Record<string, string> {
  const all = new Map<string, string>();
  for (const pair of pairs) {
    const [, name, value] = /^([^=]*)=(.*)$/s.exec(pair) ?? [];
    if (name === undefined || value === undefined) usage(`--header must be NAME=VALUE, not ${JSON.stringify(pair.slice(0, 80))}`);
    if (all.has(name)) usage(`--header ${name} is given twice`);
    all.set(name, value);
  }
  return Object.fromEntries(all);
}
