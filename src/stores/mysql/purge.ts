import type { Action, Archive, PurgeOptions } from "../../contracts/operator.ts";
import { inBatches } from "../kit/batches.ts";
import { archivable, archiveBounds, archiveBytes, archiveEvents, createKept, type Kept } from "../kit/records.ts";
import { finished } from "../../core/signal.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import { audit } from "./audit.ts";
import type { Connection, MysqlRow } from "./connection.ts";
import type { Names } from "./names.ts";
import { createPace, type Pace } from "./pace.ts";
import { readPayload } from "./payloads.ts";
import { readStored } from "./records.ts";
import { bigOf, numberOf, textOf } from "./rows.ts";
import { list } from "./values.ts";

/** Small enough that nobody waits for one of them, be it for a lock or on a replica. */
const purgeBatch = 2_000;
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
  const { archive, signal } = options;
  const [kept, pace] = [createKept(options), createPace()];
  let total = 0;
  try {
    for (const kind of kinds) {
      let mark: string | null = null;
      await inBatches(options, async () => {
        const from = { connection, n, kind, before, begin: mark };
        const batch: Batch = await (archive === undefined ? purgeSome(from) : archiveSome({ ...from, archive, kept, pace, signal }));
        total += batch.purged;
        mark = batch.mark;
        return batch.more;
      });
    }
  } finally {
    if (total > 0) await audit(connection.change, n, "purge", by.who, total, { before: before.toISOString() });
  }
  await inBatches(options, () => forgetKeys(connection, n, options.keyRetentionMs ?? keyRetentionMs));
  kept.end();
  return total;
}

interface Batch {
  readonly purged: number;
  readonly mark: string | null;
  readonly more: boolean;
}

interface From {
  readonly connection: Connection;
  readonly n: Names;
  readonly kind: Kind;
  readonly before: Date;
  readonly begin: string | null;
}

/**
 * Looked up without a lock and deleted by their numbers, in ascending order: two that purge at once wait for each other
 * and no more. Each batch begins where the last one ended, and does not walk over what that one has left dead.
 */
async function purgeSome(from: From): Promise<Batch> {
  const rows = await oldest(from, purgeBatch, []);
  if (rows.length === 0) return { purged: 0, mark: from.begin, more: false };
  return { purged: await remove(from, rows.map(seqOf)), mark: markOf(rows.at(-1)!), more: rows.length === purgeBatch };
}

interface Archiving extends From {
  readonly archive: Archive;
  readonly kept: Kept;
  readonly pace: Pace;
  readonly signal: AbortSignal | undefined;
}

async function archiveSome({ archive, kept, pace, signal, ...from }: Archiving): Promise<Batch> {
  const { connection, n, begin } = from;
  const rows = await oldest(from, archiveEvents, kept.seqs);
  if (rows.length === 0) return { purged: 0, mark: begin, more: false };
  const read = await connection.session((session) => readStored(session, n, rows.map(seqOf), pace, archiveBytes));
  const some = withinBytes(read, archiveBounds, ({ record }) => ({ payload: record.payloadBytes, headers: 0 }));
  const { events, dealt } = await archivable(some, (seq, size) => readPayload(connection, n, { seq, size }), kept);
  const seqs = events.map(({ seq }) => seq);
  if (seqs.length > 0 && !(await finished(() => archive(events), signal))) return { purged: 0, mark: begin, more: false };
  const purged = seqs.length === 0 ? 0 : await remove(from, seqs);
  const last = some[dealt - 1]?.record.seq; // none where others have deleted all of them meanwhile
  const end = rows.find((row) => seqOf(row) === last) ?? rows.at(-1)!;
  return { purged, mark: markOf(end), more: end !== rows.at(-1) || rows.length === archiveEvents };
}

const which = ({ status, moment }: Kind): string => `o.status = '${status}' AND o.${moment} < ?`;

/** The sum keeps the optimiser from making a range of every gap. */
const oldest = ({ connection, n, kind, before, begin }: From, size: number, but: readonly bigint[]): Promise<readonly MysqlRow[]> =>
  connection.run(
    `SELECT o.seq, ${kind.mark} AS mark FROM ${n.outbox} o FORCE INDEX (state) WHERE ${which(kind)}${begin === null ? "" : ` AND ${kind.mark} >= ?`}
     ${but.length === 0 ? "" : `AND (o.seq + 0) NOT IN (${list(but)})`} ORDER BY ${kind.mark} LIMIT ${size}`,
    begin === null ? [before] : [before, begin],
  );

const remove = ({ connection, n, kind, before }: From, seqs: readonly bigint[]): Promise<number> =>
  connection.transaction(({ change }) =>
    change(`DELETE o FROM ${n.outbox} o FORCE INDEX (PRIMARY) WHERE o.seq IN (${list(seqs)}) AND ${which(kind)}`, [before]),
  );

const seqOf = (row: MysqlRow): bigint => bigOf(row, "seq");

/** Nothing compares with a zero date. */
function markOf(row: MysqlRow): string | null {
  const mark = textOf(row, "mark");
  return mark.startsWith("0000") ? null : mark;
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
