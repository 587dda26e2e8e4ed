import type { Action, PurgeOptions } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import type { Connection } from "../../drivers/sqlite/connection.ts";
import { archiveBounds, archiveBytes, archiveEvents, purgeWith } from "../kit/purge.ts";
import { audit } from "./audit.ts";
import { readPayload } from "./payload.ts";
import { recordColumns, storedOf } from "./records.ts";
import { iso, sizeOf } from "./rows.ts";
import { eventsAt } from "./events.ts";

/** Small enough not to keep the file's other writers waiting for long. */
const purgeBatch = 2_000;

const purgeable =
  "SELECT seq FROM outbox WHERE status = 'PUBLISHED' AND published_at < ?1 UNION ALL SELECT seq FROM outbox WHERE status = 'DISCARDED' AND (created_at < ?1 OR typeof(created_at) <> 'text' OR julianday(created_at) IS NULL)";
const somePurgeable = `DELETE FROM outbox WHERE seq IN (${purgeable} LIMIT ${purgeBatch})`;
const someKeys = `DELETE FROM waybill_keys WHERE key IN (SELECT key FROM waybill_keys WHERE created_at < ? LIMIT ${purgeBatch})`;

/** The archive runs before the write lock is taken, or every writer of the file would wait for it. */
export function purge(connection: Connection, clock: Clock, before: string, by: Action, options?: PurgeOptions): Promise<number> {
  return purgeWith<"all", null>(
    {
      kinds: ["all"],
      begin: null,
      count: () => connection.read(({ get }) => Number(get(`SELECT count(*) AS n FROM (${purgeable})`, [before])?.["n"])),
      async purge() {
        const purged = await connection.write(({ run }) => run(somePurgeable, [before]));
        return { purged, mark: null, more: purged === purgeBatch };
      },
      next: (_kind, _from, kept) =>
        connection.read(({ all }) => {
          const rows = all(
            `SELECT CAST(o.seq AS TEXT) AS seq, ${sizeOf} AS size FROM outbox o WHERE o.seq IN
               (SELECT seq FROM (${purgeable}) WHERE seq NOT IN (SELECT value FROM json_each(?2)) LIMIT ${archiveEvents}) ORDER BY o.seq`,
            [before, json(kept)],
          );
          const some = withinBytes(rows, archiveBounds, (row) => ({ payload: Number(row["size"]), headers: 0 }));
          const stored = all(
            `SELECT ${recordColumns(archiveBytes)} FROM (${eventsAt("?2")}) o WHERE o.seq IN (SELECT value FROM json_each(?1)) ORDER BY o.seq`,
            [json(some.map((row) => BigInt(row["seq"] as string))), iso(clock.now())],
          );
          return { stored: stored.map(storedOf), mark: null, more: rows.length === archiveEvents || some.length < rows.length };
        }),
      read: (seq) => readPayload(connection, seq),
      remove: (_, events) =>
        connection.write(({ run }) =>
          run("DELETE FROM outbox WHERE seq IN (SELECT value FROM json_each(?)) AND status IN ('PUBLISHED', 'DISCARDED')", [
            json(events.map(({ seq }) => seq)),
          ]),
        ),
      audit: (purged) => connection.write((statements) => audit(statements, "purge", by, purged, { before }, clock.now())),
      async forgetKeys(retentionMs) {
        const oldest = iso(clock.now() - retentionMs);
        return { mark: null, more: (await connection.write(({ run }) => run(someKeys, [oldest]))) === purgeBatch };
      },
    },
    by,
    options,
  );
}

/** Writes numbers beyond 2^53 exactly. */
const json = (seqs: readonly bigint[]): string => `[${seqs.join(",")}]`;
