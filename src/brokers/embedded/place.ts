import { createAckLedger } from "../kit/ack-ledger.ts";

/** The first and the last offset of messages that are acknowledged without a gap. */
export type AckedRange = readonly [number, number];

/** What is recorded of a consumer's place in a topic. */
export interface Mark {
  /** Everything up to here is acknowledged. */
  readonly offset: number;
  /** Acknowledged ranges beyond the first message that is not: they are not delivered again. */
  readonly beyond: readonly AckedRange[];
}

/** How far one reader is in one topic. */
export interface ReaderPlace {
  /** The last offset that was read. */
  readonly cursor: number;
  /** Reads on to this offset. Returns a function that acknowledges it, or null where it was acknowledged before. */
  read(offset: number): (() => void) | null;
  mark(): Mark;
}

export function createPlace(from: Mark): ReaderPlace {
  const ledger = createAckLedger<number>();
  const ahead = [...from.beyond];
  let cursor = from.offset;
  return {
    get cursor() {
      return cursor;
    },
    read(offset) {
      if (offset <= cursor) return null;
      while (ahead[0] !== undefined && ahead[0][1] < offset) ahead.shift();
      const [run] = ahead;
      if (run === undefined || offset < run[0]) {
        cursor = offset;
        return ledger.open(offset);
      }
      ahead.shift();
      cursor = run[1];
      ledger.open(...run)();
      return null;
    },
    mark: () => ({ offset: ledger.settled ?? from.offset, beyond: [...ledger.beyond, ...ahead] }),
  };
}
