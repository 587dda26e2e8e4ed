import type { SqlTransaction } from "../../contracts/handle.ts";
import type { OutboxWriter } from "../../contracts/outbox-store.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Row } from "../../core/event.ts";
import { refuseLibrary } from "../../core/libraries.ts";
import { idTaken } from "../kit/writing.ts";
import { explain, isConflict, type PgClient, sqlState } from "./driver.ts";
import type { Names } from "./names.ts";

/** One statement with one parameter, whichever library carries it. */
export function createWriter(n: Names, place: string): OutboxWriter<SqlTransaction> {
  const statement = `SELECT id, duplicate FROM ${n.add}($1::json)`;
  return {
    synchronous: false,
    async append(tx, rows) {
      refuseLibrary(tx);
      refuseWithoutTransaction(tx);
      let found: readonly Readonly<Record<string, unknown>>[];
      try {
        found = (await tx.query(statement, [JSON.stringify(rows.map(recordOf))])).rows;
      } catch (error) {
        if (isConflict(error)) throw error; // whoever retries transactions knows it by its code
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

/** In one statement the server cannot tell a transaction of one statement from another; clients can. */
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
  if (status === "I") {
    throw new WaybillError(
      "NO_TRANSACTION",
      "the PostgreSQL client has no open transaction: add events between BEGIN and COMMIT, or use outbox.transaction",
    );
  }
}

function taken(error: unknown): WaybillError {
  const { detail } = error as { detail?: unknown };
  const [, id = "of one of them"] = typeof detail === "string" ? (/=\((.*)\)/.exec(detail) ?? []) : [];
  return idTaken(id, error);
}

function recordOf(row: Row): object {
  const { payload } = row;
  return {
    id: row.id,
    aggregate_type: row.aggregateType,
    aggregate_id: row.aggregateId,
    event_type: row.type,
    event_version: row.eventVersion,
    ...(typeof payload === "string" ? { payload } : { payload_bytes: Buffer.from(payload).toString("base64") }),
    content_type: row.contentType,
    headers: row.headers,
    idempotency_key: row.idempotencyKey,
    available_at: row.availableAt?.toISOString() ?? null,
  };
}
