import { WaybillError } from "../../core/errors.ts";
import { deletedUnread } from "../../core/within-bytes.ts";
import { never, orAborted } from "../../core/time.ts";
import type { Connection, MysqlRow, Run } from "./connection.ts";
import { isConflict, isSilence, serverError } from "./driver.ts";
import type { Names } from "./names.ts";
import { bigOf, lacksPayload, payloadColumns, tooLargeToSend } from "./rows.ts";
import { list } from "./values.ts";

/**
 * The rows with the payloads that they lack, where those are wanted. If the server cannot send them together, they are read one by one. A
 * payload that it cannot send at all stays missing, and fails only its own row.
 */
export async function withPayloads(
  run: Run,
  n: Names,
  rows: readonly MysqlRow[],
  wanted: (row: MysqlRow) => boolean,
): Promise<readonly MysqlRow[]> {
  const lacking = rows.filter((row) => lacksPayload(row) && wanted(row)).map((row) => bigOf(row, "seq"));
  if (lacking.length === 0) return rows;
  const read = await payloadsOf(run, n, lacking);
  return rows.map((row) => (lacksPayload(row) ? { ...row, data: read.get(bigOf(row, "seq")) ?? null } : row));
}

/** The payload of one event that was read without it. When the signal aborts, the connection is given up in the middle of the answer. */
export async function readPayload(
  { session, place }: Pick<Connection, "session" | "place">,
  n: Names,
  { seq, size }: { readonly seq: bigint; readonly size: number },
  signal: AbortSignal = never,
): Promise<Uint8Array> {
  const sql = `SELECT ${payloadColumns} FROM ${n.outbox} o FORCE INDEX (PRIMARY) WHERE o.seq = ${seq}`;
  const calledOff = (): never => {
    const cause = Object.assign(new Error("called off"), { code: "ETIMEDOUT" }); // the pool closes the connection, as for a silent server
    throw new WaybillError("STORE_UNAVAILABLE", `${place} did not answer in time`, { cause });
  };
  const reading = session(({ run }) => (signal.aborted ? calledOff() : orAborted(run(sql), signal, calledOff)));
  const [row] = await orAborted(reading, signal, calledOff); // `session` may still wait for a connection
  if (row === undefined) throw deletedUnread();
  const data = row["data"] ?? null;
  if (data?.byteLength !== size) throw new WaybillError("ROW_UNREADABLE", tooLargeToSend(size));
  return data;
}

async function payloadsOf(run: Run, n: Names, seqs: readonly bigint[]): Promise<ReadonlyMap<bigint, Buffer | null>> {
  try {
    const rows = await run(`SELECT ${payloadColumns} FROM ${n.outbox} o FORCE INDEX (PRIMARY) WHERE o.seq IN (${list(seqs)})`);
    return new Map(rows.map((row) => [bigOf(row, "seq"), row["data"] ?? null]));
  } catch (error) {
    if (serverError(error) === null || isSilence(error) || isConflict(error)) throw error;
    const found = new Map<bigint, Buffer | null>();
    if (seqs.length > 1) for (const seq of seqs) for (const each of await payloadsOf(run, n, [seq])) found.set(...each);
    return found;
  }
}
