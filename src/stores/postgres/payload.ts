import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";

const partBytes = 16 * 1024 * 1024;
/** Above this, a client in Node may not hold the row at all. */
const mostBytes = 256 * 1024 * 1024;

/** The payload of one event, part by part, so that it is never in memory in two forms as a whole; or why it cannot be read. */
export async function readPayload(run: Run, n: Names, seq: bigint, size: number): Promise<Uint8Array | string> {
  if (size > mostBytes) return `payload and headers take ${size} bytes, more than the ${mostBytes} that can be read`;
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
