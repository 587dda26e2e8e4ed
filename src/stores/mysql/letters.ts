import type { LetterFilter, LetterReport, Letters } from "../../contracts/letters.ts";
import type { Action } from "../../contracts/operator.ts";
import { inBatches, letterGroupOf, letterOf, letterTests, refuseUnfit, reportOf, wholeLetterOf, type Numbered } from "../kit/letters.ts";
import { auditedOf } from "../kit/operator.ts";
import { shown } from "../kit/status.ts";
import { audit } from "./audit.ts";
import type { Connection, MysqlRow, MysqlSession } from "./connection.ts";
import type { Names } from "./names.ts";
import { beginsWith, bigOf, cells, numberOf, textOf } from "./rows.ts";
import { list, literal, type SqlValue } from "./values.ts";

const empty = literal("");
const errorCharacters = 64 * 1024;
const told = `CONCAT_WS(${literal(": ")}, NULLIF(l.error_code, ${empty}), l.error)`;
const columns = `l.seq, l.consumer, l.topic, l.id, ${["aggregate_type", "aggregate_id", "event_type", "error_code"].map((name) => `CAST(l.${name} AS BINARY) AS ${name}`).join(", ")},
  CAST(LEFT(l.error, ${errorCharacters}) AS BINARY) AS error, CAST(LEFT(COALESCE(l.error_detail, ${empty}), ${errorCharacters}) AS BINARY) AS error_detail,
  l.attempts, l.handler_version, l.parked_at, l.redriven_at, l.whole, l.raw IS NOT NULL AS is_raw, COALESCE(OCTET_LENGTH(l.raw), OCTET_LENGTH(l.data)) AS size`;
const fit = "l.raw IS NULL AND l.whole = 1";

const bytes = (row: MysqlRow, name: string): Uint8Array | null => row[name] ?? null;

export function createLetters(connection: Connection, n: Names): Letters {
  const { run } = connection;
  return {
    async groups(filter) {
      const { where, values } = which(filter);
      const rows = await run(
        `SELECT l.consumer, l.topic, CAST(l.told AS BINARY) AS told, COUNT(*) AS letters, COUNT(l.redriven_at) AS redriven, MIN(l.parked_at) AS oldest,
           MIN(l.id) AS example
         FROM (SELECT l.consumer, l.topic, l.id, l.parked_at, l.redriven_at, LEFT(${told}, 4096) AS told FROM ${n.letters} l WHERE ${where}) l
         GROUP BY l.consumer, l.topic, l.told ORDER BY letters DESC, l.consumer, l.topic, told LIMIT ${shown}`,
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
        `SELECT ${columns}, CAST(l.envelope AS BINARY) AS envelope, l.data, l.raw FROM ${n.letters} l WHERE l.seq = ${seq}`,
      );
      return row === undefined ? null : wholeLetterOf(row, { ...cells, bytes });
    },
    redrive: (filter, by) => act(connection, n, "redrive", filter, by, by.most, by.after),
    discard: (filter, by) => act(connection, n, "discard", filter, by),
    async redriven(consumer, topic, limit) {
      const rows = await run(
        `SELECT ${columns} FROM ${n.letters} l FORCE INDEX (redriven) WHERE l.consumer = ? AND l.topic = ? AND l.redriven_at IS NOT NULL ORDER BY l.seq LIMIT ${limit}`,
        [Buffer.from(consumer), Buffer.from(topic)],
      );
      return rows.map((row) => letterOf(row, cells));
    },
  };
}

async function act(
  connection: Connection,
  n: Names,
  action: "redrive" | "discard",
  filter: LetterFilter,
  by: Action,
  most = Infinity,
  after = 0n,
): Promise<LetterReport> {
  const { where, values } = which(filter);
  if (filter.ids !== undefined) {
    const found = await connection.run(`SELECT ${columns} FROM ${n.letters} l WHERE ${where}`, values);
    refuseUnfit(
      action,
      filter.ids,
      found.map((row) => letterOf(row, cells)),
    );
  }
  const meant = action === "discard" ? where : `${where} AND l.redriven_at IS NULL AND l.seq > ${after}`;
  const rows = await connection.run(
    `SELECT l.seq, l.id FROM ${n.letters} l WHERE ${meant} ${action === "discard" ? "" : `AND ${fit}`} ORDER BY l.seq
     ${most === Infinity ? "" : `LIMIT ${most}`}`,
    values,
  );
  const [unfit] =
    action === "discard" ? [] : await connection.run(`SELECT COUNT(*) AS n FROM ${n.letters} l WHERE ${meant} AND NOT (${fit})`, values);
  const unfitLetters = unfit === undefined ? 0 : numberOf(unfit, "n");
  const meantLetters = rows.map((row) => ({ seq: bigOf(row, "seq"), id: textOf(row, "id") }));
  if (by.dryRun) return reportOf(meantLetters, unfitLetters);
  const done = await inBatches(meantLetters, (batch) => connection.transaction((session) => actOn(session, n, action, batch, filter, by)));
  return reportOf(done, unfitLetters);
}

/** Without the bounds, the server may scan the whole table for a long list, and waits for every letter that a subscriber is applying. */
const among = (letters: readonly Numbered[]): string => {
  const seqs = letters.map(({ seq }) => seq);
  return `l.seq BETWEEN ${seqs[0]!} AND ${seqs.at(-1)!} AND l.seq IN (${list(seqs)})`;
};

/** A letter that a subscriber is applying is locked until it is gone, or has failed again. */
async function actOn(
  session: MysqlSession,
  n: Names,
  action: "redrive" | "discard",
  batch: readonly Numbered[],
  filter: LetterFilter,
  by: Action,
): Promise<readonly Numbered[]> {
  const still = action === "discard" ? "" : "AND l.redriven_at IS NULL";
  const rows = await session.run(
    `SELECT l.seq, l.id FROM ${n.letters} l FORCE INDEX (seq) WHERE ${among(batch)} ${still} ORDER BY l.seq FOR UPDATE`,
  );
  const letters = rows.map((row) => ({ seq: bigOf(row, "seq"), id: textOf(row, "id") }));
  if (letters.length === 0) return letters;
  const those = `${n.letters} l FORCE INDEX (seq)`;
  await session.change(
    action === "discard"
      ? `DELETE l FROM ${those} WHERE ${among(letters)}`
      : `UPDATE ${those} SET l.redriven_at = UTC_TIMESTAMP(6) WHERE ${among(letters)}`,
  );
  await audit(
    session.change,
    n,
    action,
    by.who,
    rows.length,
    auditedOf(
      filter,
      letters.map(({ id }) => id),
    ),
  );
  return letters;
}

/** Names in a letter's key that the table stores as bytes. */
const binary = ["consumer", "topic"];

function which({ ids, error, ...filter }: LetterFilter): { readonly where: string; readonly values: readonly SqlValue[] } {
  const tests = letterTests(filter);
  const where = ["TRUE", ...tests.map(([column]) => `l.${column} = ?`)];
  const values: SqlValue[] = tests.map(([column, value]) => (binary.includes(column) ? Buffer.from(value) : value));
  if (error !== undefined) {
    where.push(beginsWith(told));
    values.push(error, error);
  }
  if (ids !== undefined) {
    where.push(`l.id IN (${["NULL", ...ids.map(() => "?")].join(", ")})`);
    values.push(...ids.map((id) => Buffer.from(id)));
  }
  return { where: where.join(" AND "), values };
}
