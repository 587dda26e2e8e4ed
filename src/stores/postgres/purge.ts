import type { Action, PurgeOptions } from "../../contracts/operator.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import { archiveBounds, archiveBytes, archiveEvents, purgeWith } from "../kit/purge.ts";
import { audit } from "./audit.ts";
import type { Connection, PgRow } from "./connection.ts";
import type { Names } from "./names.ts";
import { readPayload } from "./payload.ts";
import { tailed } from "./pending.ts";
import { recordColumns, storedOf } from "./records.ts";
import { addedWithin, list, ms, payloadSize, spanOf } from "./rows.ts";

const purgeBatch = 10_000;

/** Events that may be purged, and the order to purge them in. `mark` is where one batch ended and the next begins. */
interface Kind {
  readonly where: string;
  readonly mark: string;
  readonly from: string;
}

const bySeq = { mark: "o.seq", from: "o.seq >= $2::bigint ORDER BY o.seq" };

/** The last moment at which the floor of the log was told before this one; whatever lies up to there was published before it. */
const toldBefore = (n: Names): string => `(SELECT max(m.floor) FROM ${n.tail_marks} m WHERE m.at < $1::timestamptz)`;

const kindsOf = (n: Names): readonly Kind[] => [
  {
    where: "o.status = 'PUBLISHED' AND o.published_at < $1::timestamptz",
    mark: ms("o.published_at"),
    from: "o.published_at >= to_timestamp($2::bigint / 1000.0) ORDER BY o.published_at",
  },
  { where: tailed("o", toldBefore(n)), ...bySeq },
  { where: "o.status = 'DISCARDED' AND o.created_at < $1::timestamptz", ...bySeq },
];

export function purge(connection: Connection, n: Names, before: Date, by: Action, options?: PurgeOptions): Promise<number> {
  const { run } = connection;
  const limit = before.toISOString();
  const kinds = kindsOf(n);
  const oldest = ({ where, mark, from }: Kind, size: number, which: string): string =>
    `SELECT o.seq, ${ms("o.created_at")} AS created_ms, ${payloadSize} AS size, ${mark} AS mark FROM ${n.outbox} o
     WHERE ${which} AND ${where} AND ${from} LIMIT ${size}`;
  // The bounds on `created_at` keep the database from looking into every partition.
  const these = `seq = ANY ($1::bigint[]) AND ${addedWithin("$2", "$3")}`;
  const theseOf = (seqs: Iterable<bigint>, createdMs: readonly number[]): readonly unknown[] => [list(seqs), ...spanOf(createdMs)];
  const ofRows = (rows: readonly PgRow[]): readonly unknown[] =>
    theseOf(
      rows.map((row) => BigInt(row["seq"]!)),
      rows.map((row) => Number(row["created_ms"])),
    );

  return purgeWith<Kind, string>(
    {
      kinds,
      begin: "0",
      async count() {
        const which = kinds.map(({ where }) => `(${where})`).join(" OR ");
        return Number((await run(`SELECT count(*) AS n FROM ${n.outbox} o WHERE ${which}`, [limit]))[0]!["n"]);
      },
      /** Concurrent purges take different rows, and do not wait for row locks. */
      purge: (kind, from) =>
        connection.transaction(async (ask) => {
          const rows = await ask(`${oldest(kind, purgeBatch, "true")} FOR UPDATE SKIP LOCKED`, [limit, from]);
          if (rows.length > 0) await ask(`DELETE FROM ${n.outbox} WHERE ${these}`, ofRows(rows));
          return { purged: rows.length, mark: rows.at(-1)?.["mark"] ?? from, more: rows.length === purgeBatch };
        }),
      async next(kind, from, kept) {
        const rows = await run(oldest(kind, archiveEvents, "o.seq <> ALL ($3::bigint[])"), [limit, from, list(kept)]);
        const some = withinBytes(rows, archiveBounds, (row) => ({ payload: Number(row["size"]), headers: 0 }));
        const records = `SELECT ${recordColumns(archiveBytes)} FROM ${n.events} o WHERE ${these} ORDER BY seq`;
        return {
          stored: some.length === 0 ? [] : (await run(records, ofRows(some))).map(storedOf),
          mark: some.at(-1)?.["mark"] ?? from,
          more: some.length < rows.length || rows.length === archiveEvents,
        };
      },
      read: (seq) => readPayload(connection, n, seq),
      async remove({ where }, events) {
        const gone = await run(`DELETE FROM ${n.outbox} o WHERE ${these} AND ${where.replace("$1", "$4")} RETURNING 1 AS gone`, [
          ...theseOf(
            events.map(({ seq }) => seq),
            events.map(({ createdAt }) => createdAt.getTime()),
          ),
          limit,
        ]);
        return gone.length;
      },
      async audit(purged) {
        await run(`DELETE FROM ${n.tail_marks} WHERE floor < ${toldBefore(n)}`, [limit]); // the last one tells of the events above it
        await audit(run, n, "purge", by.who, purged, { before: limit });
      },
      async forgetKeys(retentionMs, from) {
        const [row] = await run(
          `WITH old AS (SELECT key FROM ${n.keys} WHERE created_at >= to_timestamp($2::bigint / 1000.0)
                        AND created_at < clock_timestamp() - $1::double precision * interval '1 millisecond'
                        ORDER BY created_at LIMIT ${purgeBatch} FOR UPDATE SKIP LOCKED),
                gone AS (DELETE FROM ${n.keys} k USING old WHERE k.key = old.key RETURNING k.created_at)
           SELECT count(*) AS n, ${ms("max(created_at)")} AS mark FROM gone`,
          [retentionMs, from],
        );
        return { mark: row!["mark"] ?? from, more: Number(row!["n"]) === purgeBatch };
      },
    },
    by,
    options,
  );
}
