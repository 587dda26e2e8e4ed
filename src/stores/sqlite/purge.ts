import type { Action, Archive, PurgeOptions } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import { finished } from "../../core/signal.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { inBatches } from "../kit/batches.ts";
import { archivable, archiveBounds, archiveBytes, archiveEvents, createKept, type Kept, type Stored } from "../kit/records.ts";
import { audit } from "./audit.ts";
import { readPayload } from "./payload.ts";
import { recordColumns, storedOf } from "./records.ts";
import { iso, sizeOf } from "./rows.ts";
import { eventsAt } from "./schema.ts";

/** Small enough not to keep the file's only writer waiting for long. */
const purgeBatch = 2_000;
/** Keys have a retention of their own: they outlive their events. */
const keyRetentionMs = 7 * 24 * 3_600_000;

const purgeable =
  "SELECT seq FROM outbox WHERE status = 'PUBLISHED' AND published_at < ?1 UNION ALL SELECT seq FROM outbox WHERE status = 'DISCARDED' AND (created_at < ?1 OR typeof(created_at) <> 'text' OR julianday(created_at) IS NULL)";

export async function purge(connection: Connection, clock: Clock, before: string, by: Action, options: PurgeOptions = {}): Promise<number> {
  if (by.dryRun) return connection.read((statements) => Number(statements.get(`SELECT count(*) AS n FROM (${purgeable})`, before)?.["n"]));
  const { archive } = options;
  const kept = createKept(options);
  let total = 0;
  try {
    await inBatches(options, async () => {
      const { purged, more } = await (archive === undefined
        ? purgeSome(connection, before)
        : archiveSome({ connection, clock, before, archive, kept, signal: options.signal }));
      total += purged;
      return more;
    });
  } finally {
    if (total > 0) await connection.write((statements) => audit(statements, "purge", by, total, { before }, clock.now()));
  }
  const oldest = iso(clock.now() - (options.keyRetentionMs ?? keyRetentionMs));
  const someKeys = `DELETE FROM waybill_keys WHERE key IN (SELECT key FROM waybill_keys WHERE created_at < ? LIMIT ${purgeBatch})`;
  await inBatches(options, async () => (await connection.write((statements) => statements.run(someKeys, oldest))) === purgeBatch);
  kept.end();
  return total;
}

interface Batch {
  readonly purged: number;
  readonly more: boolean;
}

async function purgeSome(connection: Connection, before: string): Promise<Batch> {
  const purged = await connection.write((statements) =>
    statements.run(`DELETE FROM outbox WHERE seq IN (${purgeable} LIMIT ${purgeBatch})`, before),
  );
  return { purged, more: purged === purgeBatch };
}

interface Archiving {
  readonly connection: Connection;
  readonly clock: Clock;
  readonly before: string;
  readonly archive: Archive;
  readonly kept: Kept;
  readonly signal: AbortSignal | undefined;
}

/**
 * One batch. The archive is asked before the write lock is taken, or every writer of the file would wait for it; what is
 * published or discarded stays so, and only what the archive was given is deleted.
 */
async function archiveSome({ connection, clock, before, archive, kept, signal }: Archiving): Promise<Batch> {
  const { batch, left } = await connection.read((statements) => nextBatch(statements, before, kept, clock.now()));
  const { events, dealt } = await archivable(batch, (seq) => readPayload(connection, seq), kept);
  const more = left || dealt < batch.length;
  if (events.length === 0) return { purged: 0, more };
  if (!(await finished(() => archive(events), signal))) return { purged: 0, more: false };
  const purged = await connection.write((statements) =>
    statements.run(
      "DELETE FROM outbox WHERE seq IN (SELECT value FROM json_each(?)) AND status IN ('PUBLISHED', 'DISCARDED')",
      json(events.map(({ seq }) => seq)),
    ),
  );
  return { purged, more };
}

/** As many of the first as an archive takes at once, and whether there may be others. */
function nextBatch(
  statements: Statements,
  before: string,
  kept: Kept,
  nowMs: number,
): { readonly batch: readonly Stored[]; readonly left: boolean } {
  const rows = statements.all(
    `SELECT CAST(o.seq AS TEXT) AS seq, ${sizeOf} AS size FROM outbox o WHERE o.seq IN
       (SELECT seq FROM (${purgeable}) WHERE seq NOT IN (SELECT value FROM json_each(?2)) LIMIT ${archiveEvents}) ORDER BY o.seq`,
    before,
    json(kept.seqs),
  );
  const some = withinBytes(rows, archiveBounds, (row) => ({ payload: Number(row["size"]), headers: 0 }));
  const batch = statements.all(
    `SELECT ${recordColumns(archiveBytes)} FROM (${eventsAt("?2")}) o WHERE o.seq IN (SELECT value FROM json_each(?1)) ORDER BY o.seq`,
    json(some.map((row) => BigInt(row["seq"] as string))),
    iso(nowMs),
  );
  return { batch: batch.map(storedOf), left: rows.length === archiveEvents || some.length < rows.length };
}

/** Numbers beyond 2^53 as they are. */
const json = (seqs: readonly bigint[]): string => `[${seqs.join(",")}]`;
