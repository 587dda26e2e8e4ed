import type { Run } from "../connection.ts";

/** Which of these transactions of the log have not ended for other sessions: their rows cannot be seen. */
export async function runningOf(run: Run, xids: readonly string[]): Promise<ReadonlySet<string>> {
  if (xids.length === 0) return new Set();
  const [next] = await run("SELECT pg_snapshot_xmax(pg_current_snapshot()) AS xid");
  const whole = new Map(xids.map((xid) => [String(wholeXid(BigInt(xid), BigInt(next!["xid"]!))), xid]));
  const rows = await run("SELECT x FROM unnest($1::text[]) AS x WHERE pg_xact_status(x::xid8) = 'in progress'", [[...whole.keys()]]);
  return new Set(rows.map(({ x }) => whole.get(x!)!));
}

/** The log has the lower half of a transaction's id. */
function wholeXid(low: bigint, near: bigint): bigint {
  const half = 1n << 31n;
  const xid = ((near >> 32n) << 32n) | low;
  if (xid - near > half) return xid - 2n * half;
  return near - xid > half ? xid + 2n * half : xid;
}
