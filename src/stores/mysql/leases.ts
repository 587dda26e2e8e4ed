import type { WrittenLease } from "../kit/expiry.ts";
import type { MysqlRow } from "./connection.ts";
import { numberOf, textOf } from "./rows.ts";

/** Of a lease of version 1, which does not say for how long it was made. */
const unknownTtlMs = 60_000;

/**
 * Tells renewals apart. Code of version 1 writes the new end alone, and then that is what tells.
 */
export const renewalOf = (table: string): string =>
  `IF(COALESCE(${table}.expires_at = ${table}.renewed_at + INTERVAL ${table}.ttl_ms * 1000 MICROSECOND, FALSE), CONCAT(${table}.renewals), CONCAT('until ', ${table}.expires_at))`;

/** Of a table with leases: what is left of each, by the server's clock. */
export const leaseColumns = (table: string): string => `CAST(${renewalOf(table)} AS BINARY) AS renewal, ${table}.ttl_ms,
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), ${table}.expires_at) DIV 1000 AS left_ms`;

export const leaseOf = (row: MysqlRow): WrittenLease => ({
  renewal: textOf(row, "renewal"),
  leftMs: numberOf(row, "left_ms"),
  ttlMs: row["ttl_ms"] === null ? unknownTtlMs : numberOf(row, "ttl_ms"),
});
