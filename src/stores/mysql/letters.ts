import { WaybillError } from "../../core/errors.ts";
import type { LetterRow } from "../../core/letter.ts";
import type { Session } from "./connection.ts";
import { errnoOf } from "./driver.ts";
import type { Names } from "./names.ts";
import type { Value } from "./values.ts";

/** A statement has two digits for each byte, and a server takes 16 MiB at once by default. */
const bytesPerStatement = 2 * 1024 * 1024;
const duplicate = 1062;

/** One that is there stays as it is. What is large comes in pieces, all in one transaction. */
export async function keepLetter({ change, run }: Pick<Session, "change" | "run">, n: Names, letter: LetterRow): Promise<void> {
  const { consumer, topic, id, digest } = letter;
  const key = [consumer, topic, id, digest].map((text) => Buffer.from(text));
  const [data, ...moreData] = piecesOf(letter.data);
  const [raw, ...moreRaw] = letter.raw === null ? [null] : piecesOf(letter.raw);
  const row: readonly (readonly [column: string, value: Value])[] = [
    ["aggregate_type", letter.aggregateType],
    ["aggregate_id", letter.aggregateId],
    ["event_type", letter.eventType],
    ["envelope", letter.envelope],
    ["data", data!],
    ["raw", raw!],
    ["error_code", letter.errorCode],
    ["error", letter.error],
    ["attempts", letter.attempts],
    ["handler_version", letter.handlerVersion],
  ];
  try {
    await change(
      `INSERT INTO ${n.letters} (consumer, topic, id, digest, ${row.map(([column]) => column).join(", ")})
       VALUES (?, ?, ?, ?, ${row.map(() => "?").join(", ")})`,
      [...key, ...row.map(([, value]) => value)],
    );
  } catch (error) {
    if (errnoOf(error) !== duplicate) throw error;
    return;
  }
  for (const [column, pieces] of [
    ["data", moreData],
    ["raw", moreRaw],
  ] as const)
    for (const piece of pieces)
      await change(`UPDATE ${n.letters} SET ${column} = CONCAT(${column}, ?) WHERE consumer = ? AND topic = ? AND id = ? AND digest = ?`, [
        piece!,
        ...key,
      ]);
  if (moreData.length + moreRaw.length === 0) return;
  // Beyond max_allowed_packet CONCAT yields NULL, and a session that is not strict only warns.
  const [kept] = await run(
    `SELECT OCTET_LENGTH(data) AS data, OCTET_LENGTH(raw) AS raw FROM ${n.letters} WHERE consumer = ? AND topic = ? AND id = ? AND digest = ?`,
    key,
  );
  for (const column of ["data", "raw"] as const) {
    const bytes = letter[column]?.byteLength ?? null;
    if (bytes !== null && String(kept?.[column]) !== String(bytes))
      throw new WaybillError(
        "PAYLOAD_TOO_LARGE",
        `the server did not keep the ${bytes} bytes of a letter's ${column}: raise its max_allowed_packet`,
      );
  }
}

function piecesOf(bytes: Uint8Array): readonly Uint8Array[] {
  const pieces = [bytes.subarray(0, bytesPerStatement)];
  for (let from = bytesPerStatement; from < bytes.byteLength; from += bytesPerStatement)
    pieces.push(bytes.subarray(from, from + bytesPerStatement));
  return pieces;
}
