import type { ConsumerState, LetterCount, ConsumerRead, Retrying } from "../../contracts/consumers.ts";
import { forgettingSeat } from "../../core/seat.ts";
import { counted, type Cells } from "./status.ts";

export interface ConsumerRows<Row> {
  /** consumer, topic, running, seen_at. */
  readonly seats: readonly Row[];
  /** consumer, topic, letters, redriven, oldest. */
  readonly letters: readonly Row[];
  /** consumer, events, attempts, failed_at. */
  readonly retrying: readonly Row[];
  /** Null unless a consumer was named. */
  readonly handled: number | null;
}

/** Marks are counted up to here: a consumer may have millions. */
export const countedMarks = counted;

export function consumersOf<Row>(named: string | undefined, rows: ConsumerRows<Row>, cells: Cells<Row>): readonly ConsumerState[] {
  const { text, number, isSet, dateOrNull } = cells;
  return consumersFrom(
    named,
    rows.seats.map((row) => ({
      ...{ consumer: text(row, "consumer"), topic: text(row, "topic"), running: isSet(row, "running") },
      seenAt: dateOrNull(row, "seen_at") ?? new Date(0),
    })),
    rows.letters.map((row) => ({
      ...{ consumer: text(row, "consumer"), topic: text(row, "topic") },
      ...{ letters: number(row, "letters"), redriven: number(row, "redriven"), oldest: dateOrNull(row, "oldest") ?? new Date(0) },
    })),
    rows.retrying.map((row) => ({
      ...{ consumer: text(row, "consumer"), events: number(row, "events"), attempts: number(row, "attempts") },
      failedAt: dateOrNull(row, "failed_at") ?? new Date(0),
    })),
    rows.handled,
  );
}

type Of<T> = T & { readonly consumer: string };

export function consumersFrom(
  named: string | undefined,
  seats: readonly Of<ConsumerRead>[],
  letters: readonly Of<LetterCount>[],
  retrying: readonly Of<Retrying>[],
  handled: number | null,
): readonly ConsumerState[] {
  const reads = seats.filter(({ topic }) => topic !== forgettingSeat);
  const names = named === undefined ? [...new Set([...reads, ...letters, ...retrying].map(({ consumer }) => consumer))].sort() : [named];
  return names.map((consumer) => {
    const [waits] = retrying.filter((of) => of.consumer === consumer);
    return {
      consumer,
      reads: reads.filter((of) => of.consumer === consumer).map(({ consumer: _, ...read }) => read),
      letters: letters.filter((of) => of.consumer === consumer).map(({ consumer: _, ...count }) => count),
      retrying: waits === undefined ? null : { events: waits.events, attempts: waits.attempts, failedAt: waits.failedAt },
      handled,
    };
  });
}
