import type { LetterFilter, LetterRecord, Letters } from "../../contracts/letters.ts";
import type { Action } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import { letterRow, type Letter } from "../../core/letter.ts";
import { told } from "../../core/reason.ts";
import { envelopeOf, refuseUnfit, reportOf } from "../kit/letters.ts";
import type { KeptLetter, Tables } from "./tables.ts";

export function createLetters(tables: Tables, clock: Clock): Letters {
  const { letters } = tables;
  const matching = (filter: LetterFilter): KeptLetter[] => [...letters.values()].filter((letter) => matches(letter, filter));
  const act = (action: "redrive" | "discard", filter: LetterFilter, by: Action, most = Infinity, after = 0n) => {
    const found = matching(filter);
    refuseUnfit(action, filter.ids ?? [], found.map(recordOf));
    const waiting = action === "discard" ? found : found.filter(({ redrivenAt }) => redrivenAt === null);
    const fit = action === "discard" ? waiting : waiting.filter((letter) => recordOf(letter).unfit === null);
    const taken = fit.filter(({ seq }) => seq > after).slice(0, most);
    const ids = taken.map(({ row }) => row.id);
    if (!by.dryRun && taken.length > 0) {
      for (const letter of taken) {
        if (action === "discard") letters.delete(letter.seq);
        else letter.redrivenAt = clock.now();
      }
      tables.audit.push({ at: new Date(clock.now()), who: by.who, action, events: taken.length, ids });
    }
    return reportOf(
      taken.map(({ seq, row }) => ({ seq, id: row.id })),
      waiting.length - fit.length,
    );
  };
  return {
    async groups(filter) {
      const groups = new Map<string, KeptLetter[]>();
      for (const letter of matching(filter)) {
        const key = JSON.stringify([letter.row.consumer, letter.row.topic, toldOf(letter)]);
        groups.set(key, [...(groups.get(key) ?? []), letter]);
      }
      return [...groups.values()]
        .map((of) => ({
          consumer: of[0]!.row.consumer,
          topic: of[0]!.row.topic,
          error: toldOf(of[0]!),
          letters: of.length,
          redriven: of.filter(({ redrivenAt }) => redrivenAt !== null).length,
          oldest: new Date(Math.min(...of.map(({ parkedAt }) => parkedAt))),
          example: of[0]!.row.id,
        }))
        .sort((a, b) => b.letters - a.letters)
        .slice(0, 100);
    },
    list: async ({ beforeSeq, limit, ...filter }) =>
      matching(filter)
        .filter(({ seq }) => beforeSeq === undefined || seq < beforeSeq)
        .reverse()
        .slice(0, limit)
        .map(recordOf),
    async show(seq) {
      const letter = letters.get(seq);
      if (letter === undefined) return null;
      return { ...recordOf(letter), envelope: envelopeOf(letter.row.id, letter.row.envelope, letter.row.data), raw: letter.row.raw };
    },
    redrive: async (filter, by) => act("redrive", filter, by, by.most, by.after),
    discard: async (filter, by) => act("discard", filter, by),
    redriven: async (consumer, topic, limit) =>
      matching({ consumer, topic })
        .filter(({ redrivenAt }) => redrivenAt !== null)
        .slice(0, limit)
        .map(recordOf),
  };
}

const toldOf = ({ row }: KeptLetter): string => told({ code: row.errorCode, error: row.error });

function matches(letter: KeptLetter, filter: LetterFilter): boolean {
  const { row } = letter;
  return (
    (filter.consumer === undefined || filter.consumer === row.consumer) &&
    (filter.topic === undefined || filter.topic === row.topic) &&
    (filter.ids === undefined || filter.ids.includes(row.id)) &&
    (filter.aggregateType === undefined || filter.aggregateType === row.aggregateType) &&
    (filter.aggregateId === undefined || filter.aggregateId === row.aggregateId) &&
    (filter.type === undefined || filter.type === row.eventType) &&
    (filter.error === undefined || toldOf(letter).startsWith(filter.error))
  );
}

function recordOf({ seq, row, parkedAt, redrivenAt }: KeptLetter): LetterRecord {
  const { consumer, topic, id, aggregateType, aggregateId, eventType, errorCode, error, errorDetail, attempts, handlerVersion } = row;
  return {
    ...{ seq, consumer, topic, id, aggregateType, aggregateId, type: eventType },
    ...{ errorCode, error, errorDetail, attempts, handlerVersion },
    parkedAt: new Date(parkedAt),
    redrivenAt: redrivenAt === null ? null : new Date(redrivenAt),
    bytes: (row.raw ?? row.data).byteLength,
    unfit: row.raw !== null ? "no event" : row.whole === 0 ? "cut" : null,
  };
}

const keyed = ["consumer", "topic", "id", "digest"] as const;

/** Stores a new letter, or updates a letter that failed again. */
export function keepLetter(tables: Tables, letter: Letter, now: number): void {
  const { letters } = tables;
  const row = letterRow(letter);
  if (letter.again !== undefined) {
    const { errorCode, error, errorDetail, attempts, handlerVersion } = row;
    const kept = letters.get(letter.again);
    if (kept === undefined) return;
    kept.row = { ...kept.row, errorCode, error, errorDetail, attempts, handlerVersion };
    kept.redrivenAt = null;
    return;
  }
  if ([...letters.values()].some((kept) => keyed.every((part) => kept.row[part] === row[part]))) return;
  const seq = (tables.lastLetter += 1n);
  const own = { ...row, data: Uint8Array.from(row.data), raw: row.raw === null ? null : Uint8Array.from(row.raw) };
  letters.set(seq, { seq, row: own, parkedAt: now, redrivenAt: null });
}
