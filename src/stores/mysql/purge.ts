import type { Action, PurgeOptions } from "../../contracts/operator.ts";
import { inBatches } from "../kit/batches.ts";
import { finished } from "../../core/signal.ts";
import { audit } from "./audit.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { recordColumns, recordOf } from "./records.ts";
import { bigOf, numberOf, textOf } from "./rows.ts";
import { list } from "./values.ts";

/** Small enough that nobody waits for one of them, be it for a lock or on a replica. */
const purgeBatch = 2_000;
/** Fewer, since an archive is given whole events. */
const archiveBatch = 500;
const keyRetentionMs = 7 * 24 * 3_600_000;

/** What may go, by the moment it goes by: `mark` is where a batch ended, and the next one begins. */
interface Kind {
  readonly status: "PUBLISHED" | "DISCARDED";
  readonly moment: string;
  readonly mark: string;
}

const kinds: readonly Kind[] = [
  { status: "PUBLISHED", moment: "published_at", mark: "o.published_at" },
  { status: "DISCARDED", moment: "created_at", mark: "o.seq" },
];

export async function purge(connection: Connection, n: Names, before: Date, by: Action, options: PurgeOptions = {}): Promise<number> {
  if (by.dryRun) {
    const counts = kinds.map(({ status, moment }) => `(SELECT COUNT(*) FROM ${n.outbox} WHERE status = '${status}' AND ${moment} < ?)`);
    const [row] = await connection.run(`SELECT ${counts.join(" + ")} AS n`, [before, before]);
    return numberOf(row!, "n");
  }
  let total = 0;
  try {
    for (const kind of kinds) {
      let mark: string | null = null;
      await inBatches(options, async () => {
        const batch = await purgeSome(connection, n, kind, before, mark, options);
        total += batch.purged;
        mark = batch.mark;
        return batch.more;
      });
    }
  } finally {
    if (total > 0) await audit(connection.change, n, "purge", by.who, total, { before: before.toISOString() });
  }
  await inBatches(options, () => forgetKeys(connection, n, options.keyRetentionMs ?? keyRetentionMs));
  return total;
}

interface Batch {
  readonly purged: number;
  readonly mark: string | null;
  readonly more: boolean;
}

/**
 * Looked up without a lock and deleted by their numbers, in ascending order: two that purge at once wait for each other
 * and no more. Each batch begins where the last one ended, and does not walk over what that one has left dead.
 */
async function purgeSome(
  connection: Connection,
  n: Names,
  kind: Kind,
  before: Date,
  begin: string | null,
  options: PurgeOptions,
): Promise<Batch> {
  const { archive, signal } = options;
  const size = archive === undefined ? purgeBatch : archiveBatch;
  const which = `o.status = '${kind.status}' AND o.${kind.moment} < ?`;
  const rows = await connection.run(
    `SELECT o.seq, ${kind.mark} AS mark FROM ${n.outbox} o FORCE INDEX (state) WHERE ${which}${begin === null ? "" : ` AND ${kind.mark} >= ?`} ORDER BY ${kind.mark} LIMIT ${size}`,
    begin === null ? [before] : [before, begin],
  );
  const last = rows.at(-1);
  if (last === undefined) return { purged: 0, mark: begin, more: false };
  const seqs = list(rows.map((row) => bigOf(row, "seq")));
  if (archive !== undefined) {
    const records = (await connection.run(`SELECT ${recordColumns} FROM ${n.events} o WHERE o.seq IN (${seqs}) ORDER BY o.seq`)).map(
      recordOf,
    );
    if (!(await finished(() => archive(records), signal))) return { purged: 0, mark: begin, more: false };
  }
  const purged = await connection.transaction(({ change }) =>
    change(`DELETE o FROM ${n.outbox} o FORCE INDEX (PRIMARY) WHERE o.seq IN (${seqs}) AND ${which}`, [before]),
  );
  const mark = textOf(last, "mark");
  // Nothing compares with a zero date.
  return { purged, mark: mark.startsWith("0000") ? null : mark, more: rows.length === size };
}

async function forgetKeys(connection: Connection, n: Names, retentionMs: number): Promise<boolean> {
  const old = `k.created_at < UTC_TIMESTAMP(6) - INTERVAL ${Math.round(retentionMs * 1000)} MICROSECOND`;
  const rows = await connection.run(
    `SELECT CAST(k.\`key\` AS BINARY) AS used FROM ${n.keys} k FORCE INDEX (age) WHERE ${old} ORDER BY k.created_at LIMIT ${purgeBatch}`,
  );
  if (rows.length === 0) return false;
  await connection.transaction(({ change }) =>
    change(
      `DELETE k FROM ${n.keys} k FORCE INDEX (PRIMARY) WHERE k.\`key\` IN (${rows.map(() => "?").join(", ")}) AND ${old}`,
      rows.map((row) => textOf(row, "used")),
    ),
  );
  return rows.length === purgeBatch;
}
