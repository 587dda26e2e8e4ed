import type { LoggedEvent, OtherRow } from "../../../contracts/log-tailer.ts";
import { maxMarkBytes } from "../../../core/letter.ts";
import { maxHeadersText, readRow } from "../../kit/stored.ts";
import { lastMs } from "../rows.ts";
import { field, fields, kinds, type ColumnPlan } from "./relation.ts";

/** How many bytes a binary value of each kind has; -1: as many as it says. */
const sizes = fields.map(([, kind]) => [-1, 4, 8, 8, -1][kind]!);
const isText = fields.map(([, kind]) => kind === kinds.text);

const nullByte = 0x6e;
const textByte = 0x74;
const binaryByte = 0x62;
/** PostgreSQL counts microseconds from the year 2000. */
const epoch2000 = 946_684_800_000;
const high = 2 ** 32;
/** Longer names are cut, as they are when they are polled: what is left still shows what is wrong. */
const maxNameBytes = 4 * (maxMarkBytes + 1);

/**
 * Reads the row of an INSERT. Of a row that is not the log's, only its aggregate. No object is made per column, and a payload stays where it arrived: an
 * event that is kept keeps the chunk that it came in.
 */
export function createRowReader(): (plan: ColumnPlan, bytes: Buffer, from: number, end: number, cut: boolean) => LoggedEvent | OtherRow {
  /** Where each value lies; a start of -1 is NULL. */
  const starts = new Int32Array(fields.length);
  const ends = new Int32Array(fields.length);
  const known = createKnownTexts();

  /** Of a row that was cut, it finds what is there. */
  const locate = (plan: ColumnPlan, bytes: Buffer, from: number, end: number, cut: boolean): void => {
    if (cut) starts.fill(-1);
    if (end - from < 2 || bytes.readUInt16BE(from) !== plan.length) throw new RangeError("a row with other columns than its table");
    let at = from + 2;
    for (let column = 0; column < plan.length; column++) {
      const of = plan[column]!;
      if (cut && end - at < 5) return;
      const form = at < end ? bytes[at++]! : 0;
      if (form === nullByte) {
        if (of >= 0) starts[of] = -1;
        continue;
      }
      if ((form !== textByte && form !== binaryByte) || end - at < 4) throw new RangeError("a value of no known form");
      const length = bytes.readUInt32BE(at);
      at += 4;
      if (cut && length > end - at) return;
      if (length > end - at) throw new RangeError("a value is longer than its message");
      if (of >= 0) {
        if (form === textByte ? !isText[of]! : sizes[of] !== -1 && sizes[of] !== length)
          throw new RangeError(`a value of ${fields[of]![0]} has another form than its type`);
        starts[of] = at;
        ends[of] = at + length;
      }
      at += length;
    }
    if (at !== end) throw new RangeError("a row is longer than its columns");
  };
  const isNull = (of: number): boolean => starts[of]! === -1;
  const lengthOf = (of: number): number => ends[of]! - starts[of]!;
  const name = (bytes: Buffer, of: number): string | null => {
    if (isNull(of)) return null;
    const from = starts[of]!;
    return lengthOf(of) <= maxNameBytes
      ? bytes.toString("utf8", from, ends[of])
      : bytes.toString("utf8", from, from + maxNameBytes).slice(0, maxMarkBytes + 1);
  };
  /** The same for a text that repeats from row to row. */
  const common = (bytes: Buffer, of: number): string | null =>
    isNull(of) || lengthOf(of) > maxKnown ? name(bytes, of) : known(bytes, starts[of]!, ends[of]!);
  /** Null for headers that are too long to be carried. */
  const headers = (bytes: Buffer): string | null => {
    if (isNull(field.headers) || lengthOf(field.headers) > maxHeadersText) return null;
    return lengthOf(field.headers) <= maxKnown
      ? known(bytes, starts[field.headers]!, ends[field.headers]!)
      : bytes.toString("utf8", starts[field.headers], ends[field.headers]);
  };
  const integer = (bytes: Buffer, of: number): number => (isNull(of) ? NaN : bytes.readInt32BE(starts[of]));
  const seq = (bytes: Buffer): bigint => {
    if (isNull(field.seq)) throw new RangeError("a row without a seq");
    const at = starts[field.seq]!;
    const number = bytes.readInt32BE(at) * high + bytes.readUInt32BE(at + 4);
    return Number.isSafeInteger(number) ? BigInt(number) : bytes.readBigInt64BE(at); // a number is cheaper to read
  };
  /** A double does not hold the microseconds of distant years, so both halves are divided by themselves. */
  const moment = (bytes: Buffer, of: number): Date => {
    if (isNull(of)) return new Date(NaN);
    const upper = bytes.readInt32BE(starts[of]);
    const ms = upper * 4_294_967 + Math.floor((upper * 296 + bytes.readUInt32BE(starts[of]! + 4)) / 1000) + epoch2000;
    return new Date(Math.max(-lastMs, Math.min(lastMs, ms)));
  };
  const data = (bytes: Buffer): Uint8Array => {
    const of = isNull(field.payload) ? field.payload_bytes : field.payload;
    return isNull(of) ? Buffer.alloc(0) : bytes.subarray(starts[of], ends[of]);
  };

  /** Nobody can tell yet whether it is the log's: the table can. */
  const large = (bytes: Buffer): LoggedEvent => {
    const [id, aggregateType, aggregateId] = [name(bytes, field.id), name(bytes, field.aggregate_type), name(bytes, field.aggregate_id)];
    if (aggregateType === null || aggregateId === null) throw new RangeError("a row whose names are too long");
    const rest = { type: "", eventVersion: 1, data: Buffer.alloc(0), contentType: "", headers: "{}", idempotencyKey: undefined };
    const { envelope } = readRow({ seq: seq(bytes), id, aggregateType, aggregateId, ...rest, createdAt: new Date(0) }, []);
    return { envelope, failures: 0, large: true };
  };

  return (plan, bytes, from, end, cut) => {
    locate(plan, bytes, from, end, cut);
    if (cut) return large(bytes);
    if (common(bytes, field.status) !== "PENDING" || !isNull(field.available_at) || !isNull(field.next_attempt_at))
      return {
        aggregateType: common(bytes, field.aggregate_type) ?? "",
        aggregateId: name(bytes, field.aggregate_id) ?? "",
        dueAt: isNull(field.available_at) || !isNull(field.next_attempt_at) ? null : moment(bytes, field.available_at),
      };
    const told = headers(bytes);
    const { envelope, unreadable } = readRow(
      {
        seq: seq(bytes),
        id: name(bytes, field.id),
        aggregateType: common(bytes, field.aggregate_type),
        aggregateId: name(bytes, field.aggregate_id),
        type: common(bytes, field.event_type),
        eventVersion: integer(bytes, field.event_version),
        data: data(bytes),
        contentType: common(bytes, field.content_type),
        headers: told ?? "{}",
        idempotencyKey: name(bytes, field.idempotency_key) ?? undefined,
        createdAt: moment(bytes, field.created_at),
      },
      told === null ? [`headers take more than ${maxHeadersText} bytes`] : [],
    );
    const failures = Math.max(0, integer(bytes, field.retry_count)) || 0;
    return unreadable === null ? { envelope, failures } : { envelope, failures, unreadable };
  };
}

const maxKnown = 64;
const places = 64;

/** Names that repeat are made once: a text costs more to make than to compare. */
function createKnownTexts(): (bytes: Buffer, from: number, to: number) => string {
  const texts: string[] = Array.from({ length: places }, () => "");
  const kept: Buffer[] = Array.from({ length: places }, () => Buffer.alloc(0));
  return (bytes, from, to) => {
    const length = to - from;
    if (length === 0) return "";
    const place = (length + bytes[from]! * 7 + bytes[to - 1]! * 31) % places;
    const before = kept[place]!;
    let same = before.length === length;
    for (let at = 0; same && at < length; at++) same = before[at] === bytes[from + at];
    if (!same) {
      kept[place] = Buffer.from(bytes.subarray(from, to));
      texts[place] = bytes.toString("utf8", from, to);
    }
    return texts[place]!;
  };
}
