import type { Schema } from "../../contracts/store.ts";
import { fingerprintOf, refuseOther, type TablesFound } from "../../core/tables.ts";
import type { Connection, SqliteRow, Statements } from "../../drivers/sqlite/connection.ts";
import { checkTables, inOneTransaction } from "../kit/schema.ts";
import { version1 } from "./schema.sql.ts";

/** One text per version, applied in order. */
const versions: readonly string[] = [version1];

/** Of each version. */
export const fingerprints: readonly string[] = versions.map((text) => fingerprintOf(text));

export function createSchema(connection: Connection, path: string): Schema {
  return {
    migrate: () =>
      connection.write((statements) => {
        const found = tablesOf(statements);
        refuseOther(path, found, fingerprints);
        const missing = versions.slice(found.version);
        for (const text of missing) statements.exec(text);
        // Also where nothing is missing: a file that this user cannot write is reported here, not at the first claim.
        statements.exec(markOf(versions.length));
        return missing.map((_, at) => found.version + at + 1);
      }),
    print: () => [inOneTransaction, versions.join("\n").trim(), `${markOf(versions.length)}\n`].join("\n"),
    grants: () => "",
    check: () => connection.read((statements) => checkFound(tablesOf(statements), path)),
  };
}

const markOf = (version: number): string =>
  `DELETE FROM waybill_meta;\nINSERT INTO waybill_meta (version, fingerprint) VALUES (${version}, '${fingerprints[version - 1]!}');`;

export const checkFound = (found: TablesFound, path: string): void => checkTables(path, found, fingerprints, `sqlite:${path}`);

export const metaExists = "SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'waybill_meta'";
/** Early builds had no fingerprint: a column that is named here and missing there would be an error. */
export const metaRow = "SELECT * FROM waybill_meta";

export function tablesOf(statements: Pick<Statements, "get">): TablesFound {
  return foundIn(statements.get(metaExists) === undefined ? undefined : statements.get(metaRow));
}

export function foundIn(meta: SqliteRow | undefined): TablesFound {
  const fingerprint = meta?.["fingerprint"];
  return { version: Number(meta?.["version"] ?? 0), fingerprint: typeof fingerprint === "string" ? fingerprint : null };
}
