import type { ConsumerState } from "../../contracts/consumers.ts";
import type { LetterFilter, LetterGroup, LetterRecord, LetterReport, WholeLetter } from "../../contracts/letters.ts";
import { systemClock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { told } from "../../core/reason.ts";
import { count, shellWord, shorten } from "../../core/text.ts";
import { isKnown, nobody, retried } from "../consumer.ts";
import type { CommandStore } from "../open.ts";
import { fields, paragraphs, table, type Cell, type Output } from "../output.ts";
import { flag } from "../parse.ts";
import { asked, brokerFlag, type Placed } from "../places.ts";
import { whole } from "../read.ts";
import type { Terminal } from "../terminal.ts";
import { usage } from "../usage.ts";
import { payloadText, shownCharacters } from "./events.ts";
import { brokerOf, given } from "./shared.ts";

/** Selects a consumer's letters instead of dead events. */
export const letterFlags = {
  consumer: flag.text("NAME", "letters of this consumer instead of dead events; --store is then the database of its inbox"),
  topic: flag.text("T", "with --consumer: only letters of this topic"),
  broker: { ...brokerFlag.broker, help: "with --topic: look first whether this broker has the topic" },
  "broker-file": brokerFlag["broker-file"],
};
export const rateFlag = { rate: flag.value("N", "redrive with --consumer: so many letters a second", whole(1, 100_000)) };

export interface LetterValues extends Placed<"broker"> {
  readonly consumer: string | undefined;
  readonly topic: string | undefined;
}

/** The letters of the consumer that was named; null when dead events are meant. Rejects when the broker lacks the topic. */
export async function lettersMeant(terminal: Terminal, values: LetterValues): Promise<LetterFilter | null> {
  const { consumer, topic } = values;
  const broker = asked("broker", values);
  if (consumer === undefined) {
    if (topic !== undefined || broker !== undefined) usage("--topic and --broker go with --consumer NAME: dead events are in the outbox");
    return null;
  }
  if (broker !== undefined) {
    if (topic === undefined) usage("--broker is where --topic is looked for: give --topic too, or leave --broker out");
    await using opened = await brokerOf(terminal, values, false);
    const signal = AbortSignal.timeout(probeMs);
    await opened.sink.connect(signal);
    await opened.sink.probe(topic, signal);
  }
  return { consumer, ...given({ topic }) };
}

const probeMs = 10_000;

export function letterList(
  out: Output,
  groups: readonly LetterGroup[],
  letters: readonly LetterRecord[],
  of: ConsumerState | undefined,
): string[] {
  const waits = of === undefined ? [] : retried(of, systemClock.now());
  if (groups.length === 0) return ["No letters.", ...(of === undefined || isKnown(of) ? waits : [nobody(of.consumer)])];
  const groupRows = groups.map((group) => [
    group.letters,
    group.redriven,
    group.oldest,
    group.topic,
    shorten(group.error, 120),
    group.example,
  ]);
  const rows = letters.map((letter) => [
    letter.seq,
    letter.id,
    letter.topic,
    `${letter.aggregateType} ${letter.aggregateId}`,
    letter.type,
    letter.parkedAt,
    letter.attempts,
    letter.handlerVersion,
    letter.redrivenAt === null ? (letter.unfit ?? "parked") : "redriven",
    shorten(told({ code: letter.errorCode, error: letter.error }), 60),
  ]);
  return paragraphs([
    table(out, ["letters", "redriven", "oldest", "topic", "error", "example"], groupRows),
    table(out, ["seq", "id", "topic", "aggregate", "type", "parked", "attempts", "version", "state", "error"], rows),
    waits,
  ]);
}

/** Every letter of an event: usually one. */
export async function lettersOf({ store }: CommandStore, filter: LetterFilter, id: string): Promise<readonly WholeLetter[]> {
  const found = await store.letters.list({ ...filter, ids: [id], limit: 100 });
  const letters = await Promise.all(found.map(({ seq }) => store.letters.show(seq)));
  const there = letters.filter((letter) => letter !== null);
  if (there.length === 0) throw new WaybillError("NOT_FOUND", `${filter.consumer} has no letter of ${JSON.stringify(id.slice(0, 80))}`);
  return there;
}

/** An event that consumers could not apply has letters: the user must say which consumer's letter is meant. */
export async function refuseLetters({ store }: CommandStore, id: string): Promise<void> {
  const letters = await store.letters.list({ ids: [id], limit: 100 }).catch(() => []);
  const [first, ...others] = [...new Set(letters.map(({ consumer }) => consumer))].sort();
  if (first === undefined) return;
  const whose = others.length === 0 ? `${first} has a letter` : `${[first, ...others].join(", ")} have letters`;
  throw new WaybillError("WRONG_STATE", `${id} is no dead event, but ${whose} of it: add --consumer ${shellWord(first)}`);
}

export function letterPage(out: Output, { envelope, raw, ...letter }: WholeLetter): string[] {
  const { data, headers, id: _, aggregateType: __, aggregateId: ___, type: ____, ...origin } = envelope;
  const ofHeaders = Object.entries(headers).map(([name, value]) => [`header ${name}`, String(value)] as const);
  const ofOrigin = raw === null ? Object.entries(origin).map(([name, value]) => [`event ${name}`, value] as const) : [];
  const lines = fields(
    out,
    [...Object.entries(letter), ...ofOrigin, ...ofHeaders].map(([name, value]) => [name, beginning(value)] as const),
  );
  return paragraphs([
    lines,
    [payloadText(raw ?? (isText(envelope.contentType) ? Buffer.from(data).toString("utf8") : data), letter.bytes)],
  ]);
}

/** An error may be as long as a payload. */
const beginning = (value: Cell): Cell =>
  typeof value === "string" && value.length > shownCharacters ? `${shorten(value, shownCharacters)} (--json has all of it)` : value;

const isText = (contentType: string): boolean => /json|^text\//i.test(contentType);

interface LetterAction {
  readonly verb: "redrive" | "discard";
  readonly filter: LetterFilter;
  readonly who: string;
  readonly dryRun: boolean;
  readonly rate: number | undefined;
}

/** At once, or `rate` letters a second with a line of progress each second. */
export async function actOnLetters(terminal: Terminal, { store }: CommandStore, action: LetterAction): Promise<LetterReport> {
  const { verb, filter, who, dryRun, rate } = action;
  const { letters } = store;
  if (verb === "discard" || dryRun || rate === undefined) return letters[verb](filter, { who, dryRun });
  const all = await letters.redrive(filter, { who, dryRun: true });
  const { ids: named = [], ...rest } = filter;
  const left = new Set(named);
  const ids: string[] = [];
  let done = 0;
  // Only goes forward: a letter that has failed again meanwhile is not redriven a second time.
  for (let after = 0n; ;) {
    const begun = performance.now();
    const which: LetterFilter = named.length === 0 ? rest : { ...rest, ids: [...left].slice(0, rate) };
    const round = await letters.redrive(which, { who, dryRun: false, most: Math.min(rate, all.letters - done), after });
    done += round.letters;
    ids.push(...round.ids.slice(0, all.ids.length - ids.length));
    for (const id of which.ids ?? []) left.delete(id);
    after = named.length === 0 ? (round.last ?? after) : after;
    if (done >= all.letters || (named.length === 0 ? round.letters : left.size) === 0) return { ...all, letters: done, ids };
    const waiting = (await letters.groups(rest)).reduce((sum, group) => sum + group.redriven, 0);
    if (!terminal.out.json) terminal.out.line(`${done} of ${all.letters} redriven, ${waiting} wait for their subscriber`);
    await systemClock.sleep(Math.max(0, 1_000 - (performance.now() - begun)));
  }
}

const sentences = {
  redrive: (consumer: string): string =>
    `They go to ${consumer} alone, in the order in which they were parked, as soon as its subscriber runs. Later events of the same aggregates were applied before.`,
  discard: (): string => "Their marks stay: a late copy of such an event is not applied.",
};

export function actedOnLetters({ verb, filter, dryRun }: LetterAction, report: LetterReport, isAsked: boolean): string[] {
  const unfit =
    report.unfit === 0 ? [] : [`${count(report.unfit, "letter")} cannot be applied: no event, or not whole. They stay; discard them.`];
  if (report.letters === 0) return ["No letter matches.", ...unfit];
  const done = verb === "redrive" ? "redriven" : "discarded";
  if (!dryRun) return [`${count(report.letters, "letter")} ${done}. ${sentences[verb](filter.consumer ?? "")}`, ...unfit];
  const more = report.letters > 20 ? [`… and ${report.letters - 20} more`] : [];
  return [
    `Would ${verb} ${count(report.letters, "letter")}. ${sentences[verb](filter.consumer ?? "")}`,
    ...unfit,
    ...report.ids.slice(0, 20),
    ...more,
    `Nothing was changed.${isAsked ? "" : " --yes does it."}`,
  ];
}
