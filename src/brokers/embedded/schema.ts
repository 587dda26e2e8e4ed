import type { Clock } from "../../core/clock.ts";
import { fingerprintOf, refuseOther, type TablesFound } from "../../core/tables.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { version1 } from "./schema.sql.ts";

/** One text per version, applied in order. */
export const versions: readonly string[] = [version1];

/** Of each version. */
export const fingerprints: readonly string[] = versions.map((text) => fingerprintOf(text));

/** Creates or upgrades the tables; writes nothing when they are up to date. */
export async function migrate(connection: Connection, path: string, clock: Clock): Promise<void> {
  const missing = (statements: Statements): readonly string[] => {
    const found = tablesOf(statements);
    refuseOther(`the embedded broker's file ${path}`, found, fingerprints);
    return versions.slice(found.version);
  };
  if ((await connection.read(missing)).length === 0) return;
  await connection.write((statements) => {
    // Read again: another process may have been quicker.
    for (const text of missing(statements)) {
      statements.exec(text);
      statements.run("INSERT INTO waybill_broker_schema (version, fingerprint, applied_at) VALUES (?, ?, ?)", [
        versions.indexOf(text) + 1,
        fingerprintOf(text),
        new Date(clock.now()).toISOString(),
      ]);
    }
  });
}

export function tablesOf(statements: Pick<Statements, "get">): TablesFound {
  const table = statements.get("SELECT 1 AS found FROM sqlite_master WHERE type = 'table' AND name = 'waybill_broker_schema'");
  // Early builds had no fingerprint: a column that is named here and missing there would be an error.
  const last = table && statements.get("SELECT * FROM waybill_broker_schema ORDER BY version DESC LIMIT 1");
  const fingerprint = last?.["fingerprint"];
  return { version: Number(last?.["version"] ?? 0), fingerprint: typeof fingerprint === "string" ? fingerprint : null };
}
