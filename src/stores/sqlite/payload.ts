import { deletedUnread } from "../../core/within-bytes.ts";
import { bytesOf, type Connection } from "../../drivers/sqlite/connection.ts";
import { dataColumn } from "./rows.ts";

/** The payload of one event that was read without it. */
export async function readPayload(connection: Connection, seq: bigint): Promise<Uint8Array> {
  const row = await connection.read((statements) => statements.get(`SELECT ${dataColumn} FROM outbox o WHERE o.seq = ?`, [Number(seq)]));
  if (row === undefined) throw deletedUnread();
  return bytesOf(row["data"]);
}
