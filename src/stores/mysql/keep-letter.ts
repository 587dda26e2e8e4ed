import { WaybillError } from "../../core/errors.ts";
import type { Letter } from "../../core/letter.ts";
import { letterColumns, marksEvent, parkedVersion, renewedColumns } from "../kit/letters.ts";
import type { MysqlSession } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import type { Names } from "./names.ts";

/** A statement has two digits for each byte, and a server takes 16 MiB at once by default. */
const bytesPerStatement = 2 * 1024 * 1024;
const duplicate = 1062;
const keyed = ["consumer", "topic", "id", "digest"];
const which = keyed.map((column) => `${column} = ?`).join(" AND ");

type Session = Pick<MysqlSession, "change" | "run">;

/** The letter, and the mark of its event. */
export async function keepLetter(session: Session, n: Names, letter: Letter): Promise<void> {
  if (letter.again === undefined) await insertLetter(session, n, letter);
  else {
    const row = renewedColumns(letter);
    // A session that has locked the letter must not make other events wait: the subscriber retries.
    await session.run(`SELECT 1 FROM ${n.letters} WHERE seq = ${letter.again} FOR UPDATE NOWAIT`);
    await session.change(
      `UPDATE ${n.letters} SET redriven_at = NULL, ${row.map(([column]) => `${column} = ?`).join(", ")} WHERE seq = ${letter.again}`,
      row.map(([, value]) => value),
    );
  }
  if (!marksEvent(letter)) return;
  const key = [letter.consumer, letter.envelope.id];
  const ours = "WHERE consumer = ? AND event_id = ?";
  // A DELETE that finds no row would lock the gap, and other events' counts with it.
  if ((await session.run(`SELECT 1 FROM ${n.attempts} ${ours}`, key)).length > 0)
    await session.change(`DELETE FROM ${n.attempts} ${ours}`, key);
  await session.change(
    `INSERT INTO ${n.inbox} (consumer, event_id, handler_version, finished) VALUES (?, ?, ${parkedVersion}, 1) ON DUPLICATE KEY UPDATE finished = finished`,
    key,
  );
}

/** An existing letter stays as it is. Large columns are written in pieces, all in one transaction. */
async function insertLetter({ change, run }: Session, n: Names, letter: Letter): Promise<void> {
  const row = letterColumns(letter);
  const key = row.slice(0, keyed.length).map(([, text]) => Buffer.from(String(text)));
  const large = row.filter((each): each is [string, Uint8Array] => each[1] instanceof Uint8Array);
  try {
    await change(
      `INSERT INTO ${n.letters} (${row.map(([column]) => column).join(", ")}) VALUES (${row.map(() => "?").join(", ")})`,
      row.map(([, value], at) => key[at] ?? (value instanceof Uint8Array ? value.subarray(0, bytesPerStatement) : value)),
    );
  } catch (error) {
    if (errnoOf(error) !== duplicate) throw error;
    return;
  }
  for (const [column, bytes] of large)
    for (let from = bytesPerStatement; from < bytes.byteLength; from += bytesPerStatement)
      await change(`UPDATE ${n.letters} SET ${column} = CONCAT(${column}, ?) WHERE ${which}`, [
        bytes.subarray(from, from + bytesPerStatement),
        ...key,
      ]);
  if (large.every(([, { byteLength }]) => byteLength <= bytesPerStatement)) return;
  // Beyond max_allowed_packet CONCAT yields NULL, and a session that is not strict only warns.
  const [kept] = await run(`SELECT OCTET_LENGTH(data) AS data, OCTET_LENGTH(raw) AS raw FROM ${n.letters} WHERE ${which}`, key);
  for (const [column, { byteLength }] of large)
    if (String(kept?.[column]) !== String(byteLength))
      throw new WaybillError(
        "PAYLOAD_TOO_LARGE",
        `the server did not keep the ${byteLength} bytes of a letter's ${column}: raise its max_allowed_packet`,
      );
}
