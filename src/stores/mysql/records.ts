import type { State } from "../../core/event.ts";
import { archiveBytes } from "../kit/purge.ts";
import { listedBytes, type Stored } from "../kit/records.ts";
import type { MysqlRow, MysqlSession } from "./connection.ts";
import type { Names } from "./names.ts";
import type { ReadPace } from "./pace.ts";
import { bigOf, dateOrNull, envelopeColumns, isSet, lacksPayload, numberOf, payloadSizeOf, readEvent, textOf, textOrNull } from "./rows.ts";
import { list, literal } from "./values.ts";

/** As much of an error as a person reads. */
const errorCharacters = 64 * 1024;

const empty = literal("");

/** All columns of an event, from the view of all events named `o`. The payload is included up to `listedBytes`. */
export const recordColumns = `${envelopeColumns(listedBytes)}, o.lane, o.available_at, o.state, o.retry_count, o.next_attempt_at,
  CAST(LEFT(o.last_error, ${errorCharacters}) AS BINARY) AS last_error,
  CAST(NULLIF(o.error_code, ${empty}) AS BINARY) AS error_code, CAST(LEFT(NULLIF(o.error_detail, ${empty}), ${errorCharacters}) AS BINARY) AS error_detail, o.published_at, CAST(o.owner AS BINARY) AS owner, CAST(o.hold AS BINARY) AS hold`;

export function storedOf(row: MysqlRow): Stored {
  const {
    envelope: { data, ...envelope },
  } = readEvent(row, true);
  const isText = isSet(row, "is_text");
  const record = {
    ...envelope,
    payload: lacksPayload(row) ? null : isText ? Buffer.from(data).toString("utf8") : data,
    payloadBytes: payloadSizeOf(row),
    lane: numberOf(row, "lane"),
    availableAt: dateOrNull(row, "available_at"),
    state: textOf(row, "state") as State,
    retryCount: numberOf(row, "retry_count"),
    nextAttemptAt: dateOrNull(row, "next_attempt_at"),
    lastError: textOrNull(row, "last_error"),
    errorCode: textOrNull(row, "error_code"),
    errorDetail: textOrNull(row, "error_detail"),
    publishedAt: dateOrNull(row, "published_at"),
    owner: textOrNull(row, "owner"),
    hold: textOrNull(row, "hold"),
  };
  return { record, isText };
}

/**
 * The first of these events, in the order given, until they take more than `bytes`. InnoDB reads a whole payload to find its length, so
 * large ones are read a few at a time.
 */
export async function readStored(
  session: Pick<MysqlSession, "run" | "server">,
  n: Names,
  seqs: readonly bigint[],
  pace: ReadPace,
  bytes = Infinity,
): Promise<readonly Stored[]> {
  const found = new Map<bigint, Stored>();
  for (let [at, sum] = [0, 0]; at < seqs.length && sum <= bytes;) {
    const { rows, count } = await pace.read(
      session,
      seqs.slice(at),
      (some) => `SELECT ${recordColumns} FROM ${n.events} o WHERE o.seq IN (${list(some)})`,
    );
    const read = rows.reduce((total, row) => total + payloadSizeOf(row), 0);
    pace.learn(count, read, archiveBytes);
    for (const row of rows) found.set(bigOf(row, "seq"), storedOf(row));
    at += count;
    sum += read;
  }
  return seqs.flatMap((seq) => found.get(seq) ?? []);
}
