import type { Action, PurgeOptions } from "../../contracts/operator.ts";
import { withinBytes } from "../../core/within-bytes.ts";
import { archiveBounds, archiveBytes, archiveEvents, purgeWith } from "../kit/purge.ts";
import { audit } from "./audit.ts";
import type { Connection, MysqlRow } from "./connection.ts";
import type { Names } from "./names.ts";
import { createPace } from "./pace.ts";
import { readPayload } from "./payloads.ts";
import { readStored } from "./records.ts";
import { bigOf, numberOf, textOf } from "./rows.ts";
import { list } from "./values.ts";

/** Small enough that one batch makes neither other sessions wait for its locks nor a replica wait for it. */
const purgeBatch = 2_000;

/** Which events may be purged, by what moment (`which`), and the column where the next batch continues (`mark`). */
interface Kind {
  readonly which: string;
  readonly mark: string;
}

const kinds: readonly Kind[] = [
  { which: "o.status = 'PUBLISHED' AND o.published_at < ?", mark: "o.published_at" },
  { which: "o.status = 'DISCARDED' AND o.created_at < ?", mark: "o.seq" },
];

/** Looks rows up without a lock, deletes them by ascending `seq`: two purges at once wait for each other, but do not deadlock. */
export function purge(connection: Connection, n: Names, before: Date, by: Action, options?: PurgeOptions): Promise<number> {
  const pace = createPace();
  /** The `+ 0` keeps the optimiser from making a range of every gap between the numbers. */
  const oldest = ({ which, mark }: Kind, size: number, from: string | null, but: readonly bigint[] = []): Promise<readonly MysqlRow[]> =>
    connection.run(
      `SELECT o.seq, ${mark} AS mark FROM ${n.outbox} o FORCE INDEX (state) WHERE ${which}${from === null ? "" : ` AND ${mark} >= ?`}
       ${but.length === 0 ? "" : `AND (o.seq + 0) NOT IN (${list(but)})`} ORDER BY ${mark} LIMIT ${size}`,
      from === null ? [before] : [before, from],
    );
  const remove = ({ which }: Kind, seqs: readonly bigint[]): Promise<number> =>
    connection.transaction(({ change }) =>
      change(`DELETE o FROM ${n.outbox} o FORCE INDEX (PRIMARY) WHERE o.seq IN (${list(seqs)}) AND ${which}`, [before]),
    );

  return purgeWith<Kind, string | null>(
    {
      kinds,
      begin: null,
      async count() {
        const counts = kinds.map(({ which }) => `(SELECT COUNT(*) FROM ${n.outbox} o WHERE ${which})`);
        const [row] = await connection.run(`SELECT ${counts.join(" + ")} AS n`, [before, before]);
        return numberOf(row!, "n");
      },
      async purge(kind, from) {
        const rows = await oldest(kind, purgeBatch, from);
        const purged = rows.length === 0 ? 0 : await remove(kind, rows.map(seqOf));
        return { purged, mark: markOf(rows.at(-1), from), more: rows.length === purgeBatch };
      },
      async next(kind, from, kept) {
        const rows = await oldest(kind, archiveEvents, from, kept);
        if (rows.length === 0) return { stored: [], mark: from, more: false };
        const read = await connection.session((session) => readStored(session, n, rows.map(seqOf), pace, archiveBytes));
        const stored = withinBytes(read, archiveBounds, ({ record }) => ({ payload: record.payloadBytes, headers: 0 }));
        const last = stored.at(-1)?.record.seq; // none where others have deleted all of them meanwhile
        const end = rows.find((row) => seqOf(row) === last) ?? rows.at(-1)!;
        return { stored, mark: markOf(end, from), more: end !== rows.at(-1) || rows.length === archiveEvents };
      },
      read: (seq, size) => readPayload(connection, n, { seq, size }),
      remove: (kind, events) =>
        remove(
          kind,
          events.map(({ seq }) => seq),
        ),
      audit: (purged) => audit(connection.change, n, "purge", by.who, purged, { before: before.toISOString() }),
      async forgetKeys(retentionMs) {
        const old = `k.created_at < UTC_TIMESTAMP(6) - INTERVAL ${Math.round(retentionMs * 1000)} MICROSECOND`;
        const rows = await connection.run(
          `SELECT CAST(k.\`key\` AS BINARY) AS used FROM ${n.keys} k FORCE INDEX (age) WHERE ${old} ORDER BY k.created_at LIMIT ${purgeBatch}`,
        );
        if (rows.length > 0)
          await connection.transaction(({ change }) =>
            change(
              `DELETE k FROM ${n.keys} k FORCE INDEX (PRIMARY) WHERE k.\`key\` IN (${rows.map(() => "?").join(", ")}) AND ${old}`,
              rows.map((row) => textOf(row, "used")),
            ),
          );
        return { mark: null, more: rows.length === purgeBatch };
      },
    },
    by,
    options,
  );
}

const seqOf = (row: MysqlRow): bigint => bigOf(row, "seq");

/** No row compares with a zero date: after one, the next batch begins without a lower bound. */
function markOf(row: MysqlRow | undefined, from: string | null): string | null {
  if (row === undefined) return from;
  const mark = textOf(row, "mark");
  return mark.startsWith("0000") ? null : mark;
}
