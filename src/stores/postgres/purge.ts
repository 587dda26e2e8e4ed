import type { Action, Archive, PurgeOptions } from "../../contracts/operator.ts";
import { inBatches } from "../kit/batches.ts";
import { archivable, archiveBounds, archiveBytes, archiveEvents, createKept, type Kept } from "../kit/records.ts";
import { finished } from "../../core/signal.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import { audit } from "./audit.ts";
import type { Connection, PgRow, Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { readPayload } from "./payload.ts";
import { recordColumns, storedOf } from "./records.ts";
import { addedWithin, list, ms, payloadSize, spanOf } from "./rows.ts";

const purgeBatch = 10_000;
const keyRetentionMs = 7 * 24 * 3_600_000;

/** What may go, by the moment it goes by: `mark` is where a batch ended, and the next one begins. */
interface Kind {
  readonly where: string;
  readonly mark: string;
  readonly from: string;
}

const kinds: readonly Kind[] = [
  {
    where: "o.status = 'PUBLISHED' AND o.published_at < $1::timestamptz",
    mark: ms("o.published_at"),
    from: "o.published_at >= to_timestamp($2::bigint / 1000.0) ORDER BY o.published_at",
  },
  { where: "o.status = 'DISCARDED' AND o.created_at < $1::timestamptz", mark: "o.seq", from: "o.seq >= $2::bigint ORDER BY o.seq" },
];

export async function purge(connection: Connection, n: Names, before: Date, by: Action, options: PurgeOptions = {}): Promise<number> {
  const limit = before.toISOString();
  if (by.dryRun) {
    const which = kinds.map(({ where }) => `(${where})`).join(" OR ");
    return Number((await connection.run(`SELECT count(*) AS n FROM ${n.outbox} o WHERE ${which}`, [limit]))[0]!["n"]);
  }
  const { archive, signal } = options;
  const kept = createKept(options);
  let total = 0;
  try {
    for (const kind of kinds) {
      let mark = "0";
      await inBatches(options, async () => {
        const batch = await (archive === undefined
          ? connection.transaction((run) => purgeSome(run, n, kind, limit, mark))
          : archiveSome({ connection, n, kind, limit, begin: mark, archive, kept, signal }));
        total += batch.purged;
        mark = batch.mark;
        return batch.more;
      });
    }
  } finally {
    if (total > 0) await audit(connection.run, n, "purge", by.who, total, { before: limit });
  }
  let mark = "0";
  await inBatches(options, async () => {
    const batch = await forgetKeys(connection.run, n, options.keyRetentionMs ?? keyRetentionMs, mark);
    mark = batch.mark;
    return batch.more;
  });
  kept.end();
  return total;
}

interface Batch {
  readonly purged: number;
  readonly mark: string;
  readonly more: boolean;
}

/**
 * Two that purge at once take different rows, and wait for nobody. Each batch begins where the last one ended, and does not
 * walk over what that one has left dead. The moments of adding keep the database from looking into every partition.
 */
async function purgeSome(run: Run, n: Names, kind: Kind, limit: string, begin: string): Promise<Batch> {
  const rows = await run(`${oldest(n, kind, purgeBatch)} FOR UPDATE SKIP LOCKED`, [limit, begin]);
  const last = rows.at(-1);
  if (last === undefined) return { purged: 0, mark: begin, more: false };
  await run(`DELETE FROM ${n.outbox} WHERE ${these}`, theseOf(rows));
  return { purged: rows.length, mark: last["mark"]!, more: rows.length === purgeBatch };
}

interface Archiving {
  readonly connection: Connection;
  readonly n: Names;
  readonly kind: Kind;
  readonly limit: string;
  readonly begin: string;
  readonly archive: Archive;
  readonly kept: Kept;
  readonly signal: AbortSignal | undefined;
}

/**
 * An archive may take long: no transaction is open meanwhile, and what it was given goes only if it still may. Two that purge
 * at once may both give it an event.
 */
async function archiveSome({ connection, n, kind, limit, begin, archive, kept, signal }: Archiving): Promise<Batch> {
  const { run } = connection;
  const rows = await run(oldest(n, kind, archiveEvents, "o.seq <> ALL ($3::bigint[])"), [limit, begin, list(kept.seqs)]);
  const some = withinBytes(rows, archiveBounds, (row) => ({ payload: Number(row["size"]), headers: 0 }));
  const last = some.at(-1);
  if (last === undefined) return { purged: 0, mark: begin, more: false };
  const found = await run(`SELECT ${recordColumns(archiveBytes)} FROM ${n.events} o WHERE ${these} ORDER BY seq`, theseOf(some));
  const { events, dealt } = await archivable(found.map(storedOf), (seq) => readPayload(connection, n, seq), kept);
  const all = dealt === found.length;
  const batch = { mark: all ? last["mark"]! : begin, more: !all || some.length < rows.length || rows.length === archiveEvents };
  if (events.length === 0) return { purged: 0, ...batch };
  if (!(await finished(() => archive(events), signal))) return { purged: 0, mark: begin, more: false };
  const given = new Set(events.map(({ seq }) => String(seq)));
  const gone = await run(`DELETE FROM ${n.outbox} o WHERE ${these} AND ${kind.where.replace("$1", "$4")} RETURNING 1 AS gone`, [
    ...theseOf(some.filter((row) => given.has(row["seq"]!))),
    limit,
  ]);
  return { purged: gone.length, ...batch };
}

const oldest = (n: Names, { where, mark, from }: Kind, size: number, which = "true"): string =>
  `SELECT o.seq, ${ms("o.created_at")} AS created_ms, ${payloadSize} AS size, ${mark} AS mark FROM ${n.outbox} o
   WHERE ${which} AND ${where} AND ${from} LIMIT ${size}`;
const these = `seq = ANY ($1::bigint[]) AND ${addedWithin("$2", "$3")}`;
const theseOf = (rows: readonly PgRow[]): readonly unknown[] => [
  list(rows.map((row) => BigInt(row["seq"]!))),
  ...spanOf(rows.map((row) => Number(row["created_ms"]))),
];

async function forgetKeys(run: Run, n: Names, retentionMs: number, begin: string): Promise<Batch> {
  const [row] = await run(
    `WITH old AS (SELECT key FROM ${n.keys} WHERE created_at >= to_timestamp($2::bigint / 1000.0)
                  AND created_at < clock_timestamp() - $1::double precision * interval '1 millisecond'
                  ORDER BY created_at LIMIT ${purgeBatch} FOR UPDATE SKIP LOCKED),
          gone AS (DELETE FROM ${n.keys} k USING old WHERE k.key = old.key RETURNING k.created_at)
     SELECT count(*) AS n, ${ms("max(created_at)")} AS mark FROM gone`,
    [retentionMs, begin],
  );
  const purged = Number(row!["n"]);
  return { purged, mark: row!["mark"] ?? begin, more: purged === purgeBatch };
}
