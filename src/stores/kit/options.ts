import type { Begins, Library } from "../../contracts/handle.ts";
import { show, WaybillError } from "../../core/errors.ts";
import { checkOptions, positive, whole } from "../../core/options.ts";
import { partitionUnits, type PartitionUnit } from "./schema.ts";

/** The options that all server stores share. Each store explains them in its own options. */
export interface ServerOptions<Pool> {
  readonly url?: string;
  readonly pool?: Pool;
  readonly connections?: number;
  readonly connectTimeoutMs?: number;
  readonly statementTimeoutMs?: number;
  readonly onPublish?: "keep" | "delete";
  readonly partitions?: PartitionUnit;
}

const known = [
  ...["url", "pool", "connections", "connectTimeoutMs", "statementTimeoutMs", "schema", "names", "onPublish", "partitions"],
  ...["clock", "tx", "db"],
];

export function checkServerOptions<Pool>(store: string, given: ServerOptions<Pool>, others: readonly string[] = []) {
  checkOptions(store, given, [...known, ...others]);
  const { onPublish = "keep", partitions = null } = given;
  if (onPublish !== "keep" && onPublish !== "delete")
    throw new WaybillError("INVALID_OPTION", `onPublish must be "keep" or "delete", not ${show(onPublish)}`);
  if (partitions !== null && !partitionUnits.includes(partitions))
    throw new WaybillError("INVALID_OPTION", `partitions must be one of ${partitionUnits.join(", ")}, not ${show(partitions)}`);
  return { onPublish, partitions, statementTimeoutMs: whole("statementTimeoutMs", given.statementTimeoutMs ?? 30_000) };
}

/** Either the user's pool, or the settings for a pool of our own. `check` refuses bad ones, and says where the database is. */
export function poolOf<Pool>(
  store: string,
  client: string,
  given: ServerOptions<Pool>,
  check: { pool(pool: Pool): string; url(url: string): string },
) {
  const { url, pool } = given;
  if ((url === undefined) === (pool === undefined))
    throw new WaybillError("INVALID_OPTION", `${store} needs either a url or a pool of ${client}: ${store}({ pool })`);
  if (pool !== undefined) return { pool, place: check.pool(pool) };
  const place = check.url(url!);
  const connections = whole("connections", given.connections ?? 10);
  return { pool: { url: url!, connections, connectTimeoutMs: positive("connectTimeoutMs", given.connectTimeoutMs ?? 10_000) }, place };
}

export function libraryOf<Db, Tx, Of extends Db, B extends Begins>(
  store: string,
  { tx, db }: Partial<Library<Db, Tx, Of, B>>,
): Library<Db, Tx, Of, B> | null {
  if (tx === undefined && db === undefined) return null;
  if (typeof tx === "function" && "begin" in tx && db !== undefined && db !== null) return { tx, db };
  throw new WaybillError(
    "INVALID_OPTION",
    `${store}: tx and db belong together: ${store}({ pool, tx: fromDrizzle, db }), where db is what the library begins transactions on`,
  );
}
