import type { LetterFilter, LetterReport, Letters } from "../../contracts/letters.ts";
import type { Action } from "../../contracts/operator.ts";
import { inBatches, letterGroupOf, letterOf, letterTests, refuseUnfit, reportOf, wholeLetterOf, type Numbered } from "../kit/letters.ts";
import { auditedOf } from "../kit/operator.ts";
import { shown } from "../kit/status.ts";
import { audit } from "./audit.ts";
import type { Connection, PgRow, Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { cells, list, ms, storable } from "./rows.ts";

const told = "concat_ws(': ', nullif(l.error_code, ''), l.error)";
const columns = `l.seq, l.consumer, l.topic, l.id, l.aggregate_type, l.aggregate_id, l.event_type, l.error_code, l.error, l.error_detail, l.attempts,
  l.handler_version, ${ms("l.parked_at")} AS parked_at, ${ms("l.redriven_at")} AS redriven_at, l.whole, l.raw IS NOT NULL AS is_raw,
  coalesce(octet_length(l.raw), octet_length(l.data)) AS size`;
const fit = "l.raw IS NULL AND l.whole = 1";

const bytes = (row: PgRow, name: string): Uint8Array | null => {
  const hex = row[name] ?? null;
  return hex === null ? null : Buffer.from(hex, "hex");
};

export function createLetters(connection: Connection, n: Names): Letters {
  const { run } = connection;
  return {
    async groups(filter) {
      const { where, values } = which(filter);
      const rows = await run(
        `SELECT l.consumer, l.topic, ${told} AS told, count(*) AS letters, count(l.redriven_at) AS redriven, ${ms("min(l.parked_at)")} AS oldest,
           min(l.id) AS example
         FROM ${n.letters} l WHERE ${where} GROUP BY 1, 2, 3 ORDER BY count(*) DESC, 1, 2, 3 LIMIT ${shown}`,
        values,
      );
      return rows.map((row) => letterGroupOf(row, cells));
    },
    async list({ beforeSeq, limit, ...filter }) {
      const { where, values } = which(filter);
      const before = beforeSeq === undefined ? "" : `AND l.seq < ${beforeSeq}`;
      const rows = await run(`SELECT ${columns} FROM ${n.letters} l WHERE ${where} ${before} ORDER BY l.seq DESC LIMIT ${limit}`, values);
      return rows.map((row) => letterOf(row, cells));
    },
    async show(seq) {
      const [row] = await run(
        `SELECT ${columns}, l.envelope, encode(l.data, 'hex') AS data, encode(l.raw, 'hex') AS raw FROM ${n.letters} l WHERE l.seq = $1::bigint`,
        [String(seq)],
      );
      return row === undefined ? null : wholeLetterOf(row, { ...cells, bytes });
    },
    redrive: (filter, by) => act(connection, n, "redrive", filter, by, by.most, by.after),
    discard: (filter, by) => act(connection, n, "discard", filter, by),
    async redriven(consumer, topic, limit) {
      const rows = await run(
        `SELECT ${columns} FROM ${n.letters} l WHERE l.consumer = $1 AND l.topic = $2 AND l.redriven_at IS NOT NULL ORDER BY l.seq LIMIT ${limit}`,
        [consumer, topic],
      );
      return rows.map((row) => letterOf(row, cells));
    },
  };
}

async function act(
  { run, transaction }: Connection,
  n: Names,
  action: "redrive" | "discard",
  filter: LetterFilter,
  by: Action,
  most?: number,
  after = 0n,
): Promise<LetterReport> {
  const { where, values } = which(filter);
  if (filter.ids !== undefined) {
    const found = await run(`SELECT ${columns} FROM ${n.letters} l WHERE ${where}`, values);
    refuseUnfit(
      action,
      filter.ids,
      found.map((row) => letterOf(row, cells)),
    );
  }
  const meant = action === "discard" ? where : `${where} AND l.redriven_at IS NULL AND l.seq > ${after}`;
  const rows = await run(
    `SELECT l.seq, l.id FROM ${n.letters} l WHERE ${meant} ${action === "discard" ? "" : `AND ${fit}`} ORDER BY l.seq
     ${most === undefined ? "" : `LIMIT ${most}`}`,
    values,
  );
  const [unfit] = action === "discard" ? [] : await run(`SELECT count(*) AS n FROM ${n.letters} l WHERE ${meant} AND NOT (${fit})`, values);
  const found = rows.map(numbered);
  const done = by.dryRun ? found : await inBatches(found, (batch) => transaction((within) => actOn(within, n, action, batch, filter, by)));
  return reportOf(done, Number(unfit?.["n"] ?? 0));
}

const numbered = (row: PgRow): Numbered => ({ seq: BigInt(row["seq"]!), id: row["id"]! });

/** A letter that a subscriber is applying is locked until it is gone, or has failed again. */
async function actOn(
  run: Run,
  n: Names,
  action: "redrive" | "discard",
  batch: readonly Numbered[],
  filter: LetterFilter,
  by: Action,
): Promise<readonly Numbered[]> {
  const still = action === "discard" ? "" : "AND l.redriven_at IS NULL";
  const seqs = (letters: readonly Numbered[]): readonly unknown[] => [list(letters.map(({ seq }) => seq))];
  const rows = await run(
    `SELECT l.seq, l.id FROM ${n.letters} l WHERE l.seq = ANY ($1::bigint[]) ${still} ORDER BY l.seq FOR UPDATE`,
    seqs(batch),
  );
  const letters = rows.map(numbered);
  if (letters.length === 0) return letters;
  await run(
    action === "discard"
      ? `DELETE FROM ${n.letters} WHERE seq = ANY ($1::bigint[])`
      : `UPDATE ${n.letters} SET redriven_at = clock_timestamp() WHERE seq = ANY ($1::bigint[])`,
    seqs(letters),
  );
  const ids = letters.map(({ id }) => id);
  await audit(run, n, action, by.who, letters.length, auditedOf(filter, ids));
  return letters;
}

function which({ ids, error, ...filter }: LetterFilter): { readonly where: string; readonly values: readonly unknown[] } {
  const tests = letterTests(filter);
  const values: unknown[] = tests.map(([, value]) => storable(value));
  const where = ["true", ...tests.map(([column], at) => `l.${column} = $${at + 1}`)];
  if (error !== undefined) where.push(`starts_with(${told}, $${values.push(storable(error))})`);
  if (ids !== undefined) where.push(`l.id = ANY ($${values.push(ids.map(storable))}::text[])`);
  return { where: where.join(" AND "), values };
}
