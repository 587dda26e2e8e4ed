import type { LetterFilter, LetterGroup, LetterRecord, LetterReport, WholeLetter } from "../../contracts/letters.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import { type Letter, letterId, type LetterRow, letterRow, markable } from "../../core/letter.ts";
import type { Cells } from "./status.ts";

/** A letter's columns and values. A column has its field's name in snake case. The key comes first: consumer, topic, id and digest. */
export const letterColumns = (letter: Letter): readonly (readonly [column: string, value: LetterRow[keyof LetterRow]])[] =>
  Object.entries(letterRow(letter)).map(([name, value]) => [name.replaceAll(/[A-Z]/g, (capital) => `_${capital.toLowerCase()}`), value]);

/** The columns that change when a letter fails again. */
const renewed = ["error_code", "error", "error_detail", "attempts", "handler_version"];
export const renewedColumns = (letter: Letter): ReturnType<typeof letterColumns> =>
  letterColumns(letter).filter(([column]) => renewed.includes(column));

/** The handler version in a mark that no handler wrote: the event has a letter. */
export const parkedVersion = 0;

/** Does parking mark the event? A message that is no event comes again as the same letter, and a cut message has to come again. */
export const marksEvent = ({ envelope, raw, cut = false }: Letter): boolean => raw === undefined && !cut && markable(envelope.id);

/** How many ids a report names. */
export const reportedIds = 10_000;

/** The column values of letters that match, except for ids and `error`. */
export function letterTests(filter: LetterFilter): readonly (readonly [column: string, value: string])[] {
  const tests = [
    ["consumer", filter.consumer],
    ["topic", filter.topic],
    ["aggregate_type", filter.aggregateType],
    ["aggregate_id", filter.aggregateId],
    ["event_type", filter.type],
  ] as const;
  return tests.flatMap(([column, value]) => (value === undefined ? [] : [[column, value]]));
}

type Reads<Row> = Cells<Row> & { bytes(row: Row, name: string): Uint8Array | null };

/** Reads the table's columns, and `size` and `is_raw`. */
export function letterOf<Row>(row: Row, { text, number, isSet, dateOrNull }: Cells<Row>): LetterRecord {
  return {
    seq: BigInt(text(row, "seq")),
    consumer: text(row, "consumer"),
    topic: text(row, "topic"),
    id: text(row, "id"),
    aggregateType: text(row, "aggregate_type"),
    aggregateId: text(row, "aggregate_id"),
    type: text(row, "event_type"),
    errorCode: text(row, "error_code"),
    error: text(row, "error"),
    errorDetail: text(row, "error_detail"),
    attempts: number(row, "attempts"),
    handlerVersion: number(row, "handler_version"),
    parkedAt: dateOrNull(row, "parked_at") ?? new Date(0),
    redrivenAt: dateOrNull(row, "redriven_at"),
    bytes: number(row, "size"),
    unfit: isSet(row, "is_raw") ? "no event" : number(row, "whole") === 0 ? "cut" : null,
  };
}

/** The same with `envelope`, `data` and `raw`. */
export function wholeLetterOf<Row>(row: Row, cells: Reads<Row>): WholeLetter {
  const data = cells.bytes(row, "data") ?? new Uint8Array(0);
  const letter = letterOf(row, cells);
  return { ...letter, envelope: envelopeOf(letter.id, cells.text(row, "envelope"), data), raw: cells.bytes(row, "raw") };
}

/** Parses what `letterRow` wrote for the letter of this id. */
export function envelopeOf(letter: string, texts: string, data: Uint8Array): Envelope {
  try {
    const { seq, createdAt, ...rest } = JSON.parse(texts) as Omit<Envelope, "data" | "seq" | "createdAt"> &
      Record<"seq" | "createdAt", string>;
    const envelope = { ...rest, seq: BigInt(seq), createdAt: new Date(createdAt), data };
    for (const name of ["id", "aggregateType", "aggregateId", "type", "contentType"] as const)
      if (typeof envelope[name] !== "string") throw new Error(`${name} is no text`);
    if (typeof envelope.headers !== "object" || envelope.headers === null) throw new Error("headers are no object");
    if (!Object.values(envelope.headers).every((value) => typeof value === "string")) throw new Error("a header is no text");
    if (envelope.idempotencyKey !== null && typeof envelope.idempotencyKey !== "string") throw new Error("idempotencyKey is no text");
    if (!Number.isInteger(envelope.eventVersion)) throw new Error("eventVersion is no whole number");
    if (Number.isNaN(envelope.createdAt.getTime())) throw new Error("createdAt is no moment");
    // With another id, applying the letter would delete it for an event that it is not about.
    if (letterId(envelope.id) !== letter) throw new Error("id is that of another event");
    return envelope;
  } catch (cause) {
    throw new WaybillError("ROW_UNREADABLE", "the letter's envelope is not what the library wrote", { cause });
  }
}

/** Reads the columns consumer, topic, told, letters, redriven, oldest and example. */
export const letterGroupOf = <Row>(row: Row, { text, number, dateOrNull }: Cells<Row>): LetterGroup => ({
  consumer: text(row, "consumer"),
  topic: text(row, "topic"),
  error: text(row, "told"),
  letters: number(row, "letters"),
  redriven: number(row, "redriven"),
  oldest: dateOrNull(row, "oldest") ?? new Date(0),
  example: text(row, "example"),
});

/** Each named id must have a letter, and for a redrive one that can be applied: silence would look like success. */
export function refuseUnfit(
  action: "redrive" | "discard",
  ids: readonly string[],
  found: readonly Pick<LetterRecord, "id" | "unfit">[],
): void {
  for (const id of ids) {
    const letters = found.filter((letter) => letter.id === id);
    if (letters.length === 0) throw new WaybillError("NOT_FOUND", `there is no letter of event ${JSON.stringify(id)}`);
    if (action === "redrive" && letters.every(({ unfit }) => unfit !== null))
      throw new WaybillError(
        "WRONG_STATE",
        letters[0]?.unfit === "cut"
          ? `the letter of ${id} does not hold the whole message: publish the event again, then discard the letter`
          : `${id} names a message that is no event, and no handler can be given it: discard the letter`,
      );
  }
}

export interface Numbered {
  readonly seq: bigint;
  readonly id: string;
}

/** Letters per transaction: hundreds of thousands would keep other sessions waiting, and exceed the statement timeout. */
const actBatch = 2_000;

/** Acts on letters in batches. `act` answers the letters that were still as they were found. */
export async function inBatches(
  letters: readonly Numbered[],
  act: (batch: readonly Numbered[]) => Promise<readonly Numbered[]>,
): Promise<readonly Numbered[]> {
  const done: Numbered[] = [];
  for (let start = 0; start < letters.length; start += actBatch) done.push(...(await act(letters.slice(start, start + actBatch))));
  return done;
}

export const reportOf = (letters: readonly Numbered[], unfit: number): LetterReport => ({
  letters: letters.length,
  unfit,
  ids: letters.slice(0, reportedIds).map(({ id }) => id),
  last: letters.at(-1)?.seq ?? null,
});
