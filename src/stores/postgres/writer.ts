import type { ProvingWriter, SqlTransaction } from "../../contracts/handle.ts";
import type { OutboxWriter } from "../../contracts/outbox-store.ts";
import { readSafely, WaybillError } from "../../core/errors.ts";
import type { Row } from "../../core/event.ts";
import { unlent } from "../../core/lend.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { isSilent, takesSavepoint } from "../../core/savepoint.ts";
import { idTaken } from "../kit/writing.ts";
import type { Connection } from "./connection.ts";
import { explain, isConflict, type PgClient, sqlState } from "./driver.ts";
import type { Names } from "./names.ts";

/**
 * One statement, whichever library runs it. One event without a key is a plain insert, which costs PostgreSQL a fifth less than the
 * function. Several events, or a key, take the function.
 */
export function createWriter(n: Names, { place, run }: Connection): OutboxWriter<SqlTransaction> & ProvingWriter {
  const statementOf = (rows: readonly Row[]): [text: string, values: string[]] =>
    rows.length === 1 && rows[0]!.idempotencyKey === null
      ? insertOf(n, rows[0]!)
      : [`SELECT id, duplicate FROM ${n.add}($1::json)`, [JSON.stringify(rows.map(recordOf))]];
  return {
    synchronous: false,
    onEnd: whenEnded,
    // A role that may only insert can ask this too.
    async prove(tx) {
      const { rows } = await tx.query("SELECT pg_catalog.pg_current_xact_id_if_assigned()::pg_catalog.text AS xid", []);
      const xid = rows[0]?.["xid"] ?? null;
      return async () => {
        if (xid === null) return; // it wrote nothing
        const [row] = await run("SELECT pg_xact_status($1::xid8) AS status", [xid]).catch((error: unknown) => {
          throw unproven(place, error);
        });
        if (row?.["status"] === "committed") return;
        throw row?.["status"] === "aborted" ? undone() : unproven(place);
      };
    },
    async append(tx, rows) {
      refuseLibrary(tx);
      refuseWithoutTransaction(tx);
      if (isSilent(tx) && !(await asked(tx, place))) throw notOpen();
      let found: readonly Readonly<Record<string, unknown>>[];
      try {
        found = (await tx.query(...statementOf(rows))).rows;
      } catch (error) {
        if (isConflict(error)) throw error; // callers that retry transactions recognise it by its code
        throw sqlState(error) === "23505" ? taken(error) : explain(error, place);
      }
      // No rows: no event had a key, and all of them were added.
      if (found.length === 0) return rows.map(({ id }) => ({ id, duplicate: false }));
      const first = new Set<string>();
      return rows.map((row, at) => {
        const { id, duplicate } = found[at]!;
        const again = row.idempotencyKey !== null && first.has(row.idempotencyKey);
        if (row.idempotencyKey !== null) first.add(row.idempotencyKey);
        return { id: String(id), duplicate: again || duplicate === true || duplicate === "t" };
      });
    },
  };
}

function undone(): WaybillError {
  return new WaybillError(
    "TRANSACTION_LOST",
    "a statement of the transaction had failed, and PostgreSQL rolled everything back: await every statement, and let its error pass",
  );
}

function unproven(place: string, cause?: unknown): WaybillError {
  return new WaybillError("COMMIT_UNKNOWN", `${place} did not say whether it kept a transaction that the library reported as committed`, {
    cause,
  });
}

/** Callbacks that wait for the end of a client's transaction. All stores share one listener per client. */
const waiting = new WeakMap<object, Set<() => void>>();

/**
 * The transaction of a handler ends when the handler's own handle is no longer valid. So the listener is on the client behind it. Whatever a
 * listener throws would end the process, inside an event of pg.
 */
function whenEnded(tx: SqlTransaction, then: () => void): boolean {
  const client = unlent(tx) as Partial<PgClient>;
  if (typeof client.getTransactionStatus !== "function" || typeof client.on !== "function" || client.off === undefined) return false;
  const others = waiting.get(client);
  if (others !== undefined) return others.add(then).size > 0;
  const all = new Set([then]);
  waiting.set(client, all);
  const answered = (): void => {
    if (isOpen(client)) return;
    client.off!("drain", answered);
    waiting.delete(client);
    for (const each of all) attempt(each);
  };
  client.on("drain", answered);
  return true;
}

const isOpen = (client: Partial<PgClient>): boolean => readSafely(() => client.getTransactionStatus!() !== "I", false);
const attempt = (hint: () => void): void => readSafely(hint, undefined);

/** Within one statement, the server cannot distinguish a single-statement transaction from a longer one; clients can. */
function refuseWithoutTransaction(tx: SqlTransaction): void {
  const { query, totalCount } = tx as Partial<SqlTransaction> & { totalCount?: unknown };
  if (typeof query !== "function" || typeof totalCount === "number") {
    const given =
      typeof totalCount === "number" ? "a pool, whose statements each commit by themselves," : "something without a query method";
    throw new WaybillError(
      "NO_TRANSACTION",
      `outbox.add was given ${given} in place of a transaction: give it the client on which BEGIN was run`,
    );
  }
  const status = (tx as unknown as Partial<PgClient>).getTransactionStatus?.();
  if (status === "I") throw notOpen();
}

const asked = (client: Parameters<typeof takesSavepoint>[0], place: string): Promise<boolean> =>
  takesSavepoint(client).catch((error: unknown) => {
    throw explain(error, place);
  });

const notOpen = (): WaybillError =>
  new WaybillError(
    "NO_TRANSACTION",
    "the PostgreSQL client has no open transaction: add events between BEGIN and COMMIT, or use outbox.transaction",
  );

function taken(error: unknown): WaybillError {
  const { detail } = error as { detail?: unknown };
  const [, id = "of one of them"] = typeof detail === "string" ? (/=\((.*)\)/.exec(detail) ?? []) : [];
  return idTaken(id, error);
}

/** Leaves out what the table fills in by itself. All values are sent as text, because libraries convert other types differently. */
function insertOf(n: Names, row: Row): [text: string, values: string[]] {
  const columns = ["id", "aggregate_type", "aggregate_id", "event_type"];
  const values = [row.id, row.aggregateType, row.aggregateId, row.type];
  const given = ["$1", "$2", "$3", "$4"];
  const give = (column: string, value: string, as: (value: string) => string): void => {
    columns.push(column);
    given.push(as(`$${values.push(value)}::text`));
  };
  const { payload, headers } = row;
  if (typeof payload === "string") give("payload", payload, (text) => text);
  else give("payload_bytes", base64(payload), (text) => `pg_catalog.decode(${text}, 'base64')`);
  if (row.eventVersion !== 1) give("event_version", String(row.eventVersion), (text) => `${text}::integer`);
  if (row.contentType !== "application/json") give("content_type", row.contentType, (text) => text);
  if (Object.keys(headers).length > 0) give("headers", JSON.stringify(headers), (text) => `${text}::json`);
  if (row.availableAt !== null) give("available_at", row.availableAt.toISOString(), (text) => `${text}::timestamptz`);
  return [`INSERT INTO ${n.outbox} (${columns.join(", ")}) VALUES (${given.join(", ")})`, values];
}

const base64 = (bytes: Uint8Array): string => Buffer.from(bytes).toString("base64");

function recordOf(row: Row): object {
  const { payload } = row;
  return {
    id: row.id,
    aggregate_type: row.aggregateType,
    aggregate_id: row.aggregateId,
    event_type: row.type,
    event_version: row.eventVersion,
    ...(typeof payload === "string" ? { payload } : { payload_bytes: base64(payload) }),
    content_type: row.contentType,
    headers: row.headers,
    idempotency_key: row.idempotencyKey,
    available_at: row.availableAt?.toISOString() ?? null,
  };
}
