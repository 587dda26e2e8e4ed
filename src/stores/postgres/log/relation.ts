import { LogUnreadable } from "../../../core/log-unreadable.ts";

/** Kinds of values, by how they are read from the log. */
export const kinds = { text: 0, integer: 1, long: 2, moment: 3, bytes: 4 } as const;

/** What we read of a row, in no particular order: the log has columns in the order of the table. */
export const fields = [
  ["seq", kinds.long],
  ["id", kinds.text],
  ["aggregate_type", kinds.text],
  ["aggregate_id", kinds.text],
  ["event_type", kinds.text],
  ["event_version", kinds.integer],
  ["payload", kinds.text],
  ["payload_bytes", kinds.bytes],
  ["content_type", kinds.text],
  ["headers", kinds.text],
  ["idempotency_key", kinds.text],
  ["created_at", kinds.moment],
  ["available_at", kinds.moment],
  ["status", kinds.text],
  ["retry_count", kinds.integer],
  ["next_attempt_at", kinds.moment],
] as const;

export type FieldName = (typeof fields)[number][0];

/** The columns that a publication has to give. */
export const columnsRead: readonly FieldName[] = fields.map(([name]) => name);
/** The index of each field. */
export const field = Object.fromEntries(fields.map(([name], at) => [name, at])) as Readonly<Record<FieldName, number>>;

/** Type identifiers that a value of this kind may have; they are the same in every database. A json comes as its text. */
const types: readonly (readonly number[])[] = [[25, 1043, 114], [23], [20], [1184], [17]];

export interface LoggedTable {
  readonly schema: string;
  readonly table: string;
}

/** For each column of the log's table, which of our fields it is, or -1. */
export type ColumnPlan = Int8Array;

/** A reader of a message that may hold anything. Every step is within the message, or a RangeError. */
export function cursor(bytes: Buffer, from: number, end: number) {
  let at = from;
  const step = (length: number): number => {
    if (length < 0 || length > end - at) throw new RangeError("it ends too early");
    const start = at;
    at += length;
    return start;
  };
  return {
    skip: (length: number): void => void step(length),
    byte: () => bytes[step(1)]!,
    short: () => bytes.readUInt16BE(step(2)),
    int: () => bytes.readUInt32BE(step(4)),
    name(): string {
      const stop = bytes.indexOf(0, at);
      if (stop === -1 || stop >= end) throw new RangeError("a name has no end");
      return bytes.toString("utf8", step(stop + 1 - at), stop);
    },
    done: () => at === end,
  };
}

/** Reads a RELATION message behind its type. Null for a table that is not ours. */
export function readRelation(
  bytes: Buffer,
  from: number,
  end: number,
  ours: LoggedTable,
): { readonly id: number; readonly plan: ColumnPlan | null } {
  const read = cursor(bytes, from, end);
  const id = read.int();
  const [schema, table] = [read.name(), read.name()];
  read.skip(1); // the replica identity
  const plan = new Int8Array(read.short()).fill(-1);
  const isOurs = schema === ours.schema && table === ours.table;
  for (let at = 0; at < plan.length; at++) {
    read.skip(1); // whether it is part of the key
    const name = read.name();
    const type = read.int();
    read.skip(4); // the type's modifier
    const found = fields.findIndex(([known]) => known === name);
    if (!isOurs || found === -1) continue;
    if (!types[fields[found]![1]]!.includes(type)) throw unfit(ours, `its column ${name} has a type that Waybill does not give it`);
    plan[at] = found;
  }
  if (!read.done()) throw new RangeError("it does not end where it should");
  const absent = isOurs ? columnsRead.filter((name) => !plan.includes(field[name])) : [];
  if (absent.length > 0) throw unfit(ours, `the log does not have its columns ${absent.join(", ")}`);
  return { id, plan: isOurs ? plan : null };
}

const unfit = ({ schema, table }: LoggedTable, why: string): LogUnreadable =>
  new LogUnreadable("publication", `the events of ${schema}.${table} cannot be read from the log: ${why}`);
