import { tooLargeToRead } from "../../core/within-bytes.ts";
import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";

const partBytes = 16 * 1024 * 1024;

/** The payload of one event, part by part, so that it is never in memory in two forms as a whole; or why it cannot be read. */
export async function readPayload(run: Run, n: Names, seq: bigint, size: number): Promise<Uint8Array | string> {
  const tooLarge = tooLargeToRead(size);
  if (tooLarge !== null) return tooLarge;
  const parts: Buffer[] = [];
  for (let from = 1; ; from += partBytes) {
    const [row] = await run(
      `SELECT encode(substring(coalesce(convert_to(payload, 'UTF8'), payload_bytes) FROM $2::integer FOR ${partBytes}), 'hex') AS part
       FROM ${n.outbox} WHERE seq = $1::bigint`,
      [String(seq), from],
    );
    if (row === undefined) return "the row was deleted before its payload was read";
    parts.push(Buffer.from(row["part"] ?? "", "hex"));
    if (parts.at(-1)!.length < partBytes) return parts.length === 1 ? parts[0]! : Buffer.concat(parts);
  }
}
