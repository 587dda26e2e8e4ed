import { deletedUnread } from "../../core/within-bytes.ts";
import { never, orAborted } from "../../core/time.ts";
import { type Connection, Late, type Run } from "./connection.ts";
import type { Names } from "./names.ts";

const partBytes = 1024 * 1024;
const partsAtOnce = 4;

interface Reading {
  readonly signal: AbortSignal;
  /** Called for each part. */
  readonly arrived: (() => void) | undefined;
}

/**
 * Reads the payload of one event in parts, so that memory never holds the whole of it in two forms. The server assembles the value once,
 * for the first part, and the cursor keeps it. A statement per part would read and unpack the whole value each time. When the signal
 * aborts, the connection is dropped in the middle of a part.
 */
export function readPayload(
  connection: Connection,
  n: Names,
  seq: bigint,
  { signal, arrived }: Reading = { signal: never, arrived: undefined },
): Promise<Uint8Array> {
  const calledOff = (): never => {
    throw new Late(connection.place);
  };
  const reading = connection.snapshot(async (ask) => {
    const run = (text: string): ReturnType<Run> => (signal.aborted ? calledOff() : orAborted(ask(text), signal, calledOff));
    await run(`DECLARE waybill_parts NO SCROLL CURSOR FOR
      SELECT octet_length(w.data) AS size, encode(substring(w.data FROM p.first FOR ${partBytes}), 'base64') AS part
      FROM (SELECT coalesce(convert_to(payload, 'UTF8'), payload_bytes, '') AS data FROM ${n.outbox} WHERE seq = ${seq} OFFSET 0) w
      CROSS JOIN LATERAL generate_series(1, greatest(1, octet_length(w.data)), ${partBytes}) AS p (first)`);
    let data: Buffer | null = null;
    let read = 0;
    do {
      const rows = await run(`FETCH ${partsAtOnce} FROM waybill_parts`);
      if (rows.length === 0) throw deletedUnread();
      data ??= Buffer.allocUnsafe(Number(rows[0]!["size"]));
      for (const row of rows) read += data.write(row["part"]!, read, "base64");
      arrived?.();
    } while (read < data.length);
    return data;
  });
  return orAborted(reading, signal, calledOff); // the reading may still be waiting for a connection
}
