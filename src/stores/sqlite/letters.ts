import type { LetterFilter, LetterReport, Letters } from "../../contracts/letters.ts";
import type { Action } from "../../contracts/operator.ts";
import type { Clock } from "../../core/clock.ts";
import { bytesOf, type Connection, type SqliteRow, type Statements } from "../../drivers/sqlite/connection.ts";
import { inBatches, letterGroupOf, letterOf, letterTests, refuseUnfit, reportOf, wholeLetterOf, type Numbered } from "../kit/letters.ts";
import { auditedOf } from "../kit/operator.ts";
import { shown } from "../kit/status.ts";
import { audit } from "./audit.ts";
import { beginsWith, cells, countOf, foreign, iso } from "./rows.ts";

const errorBytes = 64 * 1024;
const told = "coalesce(nullif(error_code, '') || ': ', '') || error";
const named = ["consumer", "topic", "id", "aggregate_type", "aggregate_id", "event_type", "error_code", "parked_at", "redriven_at"];
const columns = `CAST(seq AS TEXT) AS seq, ${named.map((name) => `${foreign(name)} AS ${name}`).join(", ")}, ${foreign("error", errorBytes)} AS error,
  ${foreign("error_detail", errorBytes)} AS error_detail, ${countOf("attempts")} AS attempts, ${countOf("handler_version")} AS handler_version, whole, raw IS NOT NULL AS is_raw, coalesce(length(raw), length(data)) AS size`;
const fit = "raw IS NULL AND whole = 1";

const bytes = (row: SqliteRow, name: string): Uint8Array | null => (row[name] === null ? null : bytesOf(row[name]));

export function createLetters(connection: Connection, clock: Clock): Letters {
  return {
    groups: (filter) =>
      connection.read((statements) => {
        const { where, values } = which(filter);
        const rows = statements.all(
          `SELECT ${foreign("consumer")} AS consumer, ${foreign("topic")} AS topic, ${foreign("told", errorBytes)} AS told, count(*) AS letters,
             count(redriven_at) AS redriven, min(${foreign("parked_at")}) AS oldest, min(${foreign("id")}) AS example
           FROM (SELECT *, ${told} AS told FROM waybill_letters WHERE ${where})
           GROUP BY consumer, topic, told ORDER BY count(*) DESC, consumer, topic, told LIMIT ${shown}`,
          values,
        );
        return rows.map((row) => letterGroupOf(row, cells));
      }),
    list: ({ beforeSeq, limit, ...filter }) =>
      connection.read((statements) => {
        const { where, values } = which(filter);
        const before = beforeSeq === undefined ? "" : `AND seq < ${beforeSeq}`;
        return statements
          .all(`SELECT ${columns} FROM waybill_letters WHERE ${where} ${before} ORDER BY waybill_letters.seq DESC LIMIT ${limit}`, values)
          .map((row) => letterOf(row, cells));
      }),
    show: (seq) =>
      connection.read((statements) => {
        const row = statements.get(
          `SELECT ${columns}, CAST(envelope AS BLOB) AS envelope, CAST(data AS BLOB) AS data, CAST(raw AS BLOB) AS raw FROM waybill_letters WHERE seq = ?`,
          [Number(seq)],
        );
        return row === undefined ? null : wholeLetterOf(row, { ...cells, bytes });
      }),
    redrive: (filter, by) => act(connection, "redrive", filter, by, clock, by.most, by.after),
    discard: (filter, by) => act(connection, "discard", filter, by, clock),
    redriven: (consumer, topic, limit) =>
      connection.read((statements) =>
        statements
          .all(
            `SELECT ${columns} FROM waybill_letters WHERE consumer = ? AND topic = ? AND redriven_at IS NOT NULL ORDER BY waybill_letters.seq LIMIT ${limit}`,
            [consumer, topic],
          )
          .map((row) => letterOf(row, cells)),
      ),
  };
}

async function act(
  connection: Connection,
  action: "redrive" | "discard",
  filter: LetterFilter,
  by: Action,
  clock: Clock,
  most?: number,
  after = 0n,
): Promise<LetterReport> {
  const { found, unfit } = await connection.read((statements) => meantBy(statements, action, filter, most, after));
  const done = by.dryRun
    ? found
    : await inBatches(found, (batch) => connection.write((statements) => actOn(statements, action, batch, filter, by, clock.now())));
  return reportOf(done, unfit);
}

function meantBy(
  statements: Statements,
  action: "redrive" | "discard",
  filter: LetterFilter,
  most: number | undefined,
  after: bigint,
): { readonly found: readonly Numbered[]; readonly unfit: number } {
  const { where, values } = which(filter);
  if (filter.ids !== undefined) {
    const found = statements.all(`SELECT ${columns} FROM waybill_letters WHERE ${where}`, values);
    refuseUnfit(
      action,
      filter.ids,
      found.map((row) => letterOf(row, cells)),
    );
  }
  const meant = action === "discard" ? where : `${where} AND redriven_at IS NULL AND seq > ${after}`;
  const rows = statements.all(
    `SELECT seq, ${foreign("id")} AS shown FROM waybill_letters WHERE ${meant} ${action === "discard" ? "" : `AND ${fit}`}
     ORDER BY seq ${most === undefined ? "" : `LIMIT ${most}`}`,
    values,
  );
  const unfit =
    action === "discard" ? null : statements.get(`SELECT count(*) AS n FROM waybill_letters WHERE ${meant} AND NOT (${fit})`, values);
  return { found: rows.map(numbered), unfit: Number(unfit?.["n"] ?? 0) };
}

const numbered = (row: SqliteRow): Numbered => ({ seq: BigInt(Number(row["seq"])), id: cells.text(row, "shown") });

function actOn(
  statements: Statements,
  action: "redrive" | "discard",
  batch: readonly Numbered[],
  filter: LetterFilter,
  by: Action,
  nowMs: number,
): readonly Numbered[] {
  const still = action === "discard" ? "" : "AND redriven_at IS NULL";
  const those = "seq IN (SELECT value FROM json_each(?))";
  const seqs = (letters: readonly Numbered[]): string => JSON.stringify(letters.map(({ seq }) => Number(seq)));
  const letters = statements
    .all(`SELECT seq, ${foreign("id")} AS shown FROM waybill_letters WHERE ${those} ${still} ORDER BY seq`, [seqs(batch)])
    .map(numbered);
  if (letters.length === 0) return letters;
  if (action === "discard") statements.run(`DELETE FROM waybill_letters WHERE ${those}`, [seqs(letters)]);
  else statements.run(`UPDATE waybill_letters SET redriven_at = ? WHERE ${those}`, [iso(nowMs), seqs(letters)]);
  const ids = letters.map(({ id }) => id);
  audit(statements, action, by, letters.length, auditedOf(filter, ids), nowMs);
  return letters;
}

function which({ ids, error, ...filter }: LetterFilter): { readonly where: string; readonly values: readonly string[] } {
  const tests = letterTests(filter);
  const where = ["true", ...tests.map(([column]) => `${column} = ?`)];
  const values = tests.map(([, value]) => value);
  if (error !== undefined) {
    where.push(beginsWith(told));
    values.push(error, error);
  }
  if (ids !== undefined) {
    where.push("id IN (SELECT value FROM json_each(?))");
    values.push(JSON.stringify(ids));
  }
  return { where: where.join(" AND "), values };
}
