import type { LoggedEvent, LoggedTransaction, OtherRow } from "../../../contracts/log-tailer.ts";
import { LogUnreadable } from "../../../core/log-unreadable.ts";
import { lsnText } from "./lsn.ts";
import { readRelation, type LoggedTable, type ColumnPlan } from "./relation.ts";
import { createRowReader } from "./row.ts";

/** A transaction comes whole below this, and above it in parts. */
const partEvents = 256;
const partBytes = 256 * 1024;

export interface Decoder {
  /** One message of pgoutput. Throws a LogUnreadable. */
  take(bytes: Buffer, from: number, end: number, cut?: boolean): void;
  /** The server has sent everything that committed before the position at `at`. */
  passed(bytes: Buffer, at: number): void;
  /** Whether `give` has something to tell. */
  ready(): boolean;
  give(): { readonly transactions: readonly LoggedTransaction[]; readonly end: string };
}

const B = 0x42;
const C = 0x43;
const I = 0x49;
const R = 0x52;
/** Origins, types, updates, deletes, truncates and messages. Our publication has only inserts. */
const skipped = new Set(Buffer.from("OYUDTM"));
const [beginBytes, commitBytes] = [21, 26];

/** Reads the protocol's first version without streaming: transactions come one after another, each when it has committed. */
export function createDecoder(ours: LoggedTable, start: string): Decoder {
  const relations = new Map<number, ColumnPlan | null>();
  const readRow = createRowReader();
  let transactions: LoggedTransaction[] = [];
  let told = start;
  let end = start;
  // Of the transaction that is being read.
  let inside = false;
  let begun = false;
  let [xid, commit] = [0, ""];
  let events: LoggedEvent[] = [];
  let others: OtherRow[] = [];
  let bytesRead = 0;

  const need = (is: boolean, why: string): void => {
    if (!is) throw new RangeError(why);
  };
  const part = (until: string | null): void => {
    transactions.push({ xid: String(xid), commit, end: until, events, others });
    events = [];
    others = [];
    bytesRead = 0;
  };
  const insert = (bytes: Buffer, from: number, to: number, cut: boolean): void => {
    need(inside && to - from >= 8 && bytes[from + 5] === 0x4e, "an insert outside of a transaction, or without a row");
    const plan = relations.get(bytes.readUInt32BE(from + 1));
    need(plan !== undefined, "a row of a table that was not described");
    if (plan === null || plan === undefined) return;
    const row = readRow(plan, bytes, from + 6, to, cut);
    if ("envelope" in row) events.push(row);
    else others.push(row);
    bytesRead += to - from;
  };
  const read = (bytes: Buffer, from: number, to: number, cut: boolean): void => {
    need(!cut || bytes[from] === I || skipped.has(bytes[from]!), "a message that is too long");
    switch (bytes[from] ?? 0) {
      case I:
        return insert(bytes, from, to, cut);
      case B:
        need(!inside && to - from === beginBytes, "a transaction that begins inside another");
        inside = true;
        begun = false;
        commit = lsnText(bytes, from + 1);
        xid = bytes.readUInt32BE(from + 17);
        return;
      case C:
        need(inside && to - from === commitBytes, "a commit without a transaction");
        inside = false;
        end = lsnText(bytes, from + 10);
        if (begun || events.length + others.length > 0) part(end);
        return;
      case R: {
        const { id, plan } = readRelation(bytes, from + 1, to, ours);
        relations.set(id, plan);
        return;
      }
      default:
        need(skipped.has(bytes[from]!), "a message of no known kind");
    }
  };
  const largePart = (): boolean => events.length + others.length >= partEvents || bytesRead >= partBytes;

  return {
    take(bytes, from, to, cut = false) {
      try {
        read(bytes, from, to, cut);
      } catch (error) {
        if (!(error instanceof RangeError)) throw error;
        throw new LogUnreadable("damaged", `the log sent what cannot be read: ${error.message}`, { cause: error });
      }
    },
    passed(bytes, at) {
      if (!inside) end = lsnText(bytes, at);
    },
    ready: () => transactions.length > 0 || end !== told || largePart(),
    give() {
      if (largePart()) {
        part(null);
        begun = true;
      }
      const given = transactions;
      transactions = [];
      told = end;
      return { transactions: given, end };
    },
  };
}
