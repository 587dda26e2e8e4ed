import { createHash } from "node:crypto";
import { WaybillError } from "./errors.ts";

/** What a database says about its Waybill tables. Version 0: there are none. */
export interface TablesFound {
  readonly version: number;
  /** Null where an early build made them, which wrote none. */
  readonly fingerprint: string | null;
}

/** Identifies the SQL of a version, written with the default names so that it does not depend on the user's. */
export const fingerprintOf = (...texts: readonly string[]): string => createHash("sha256").update(texts.join("\0")).digest("hex");

/**
 * Refuses tables that this code neither made nor can upgrade. `known` has the fingerprint of each version, from version 1 on. A version may
 * change until it is released, so tables with another fingerprint have a text that no released code knows.
 */
export function refuseOther(place: string, { version, fingerprint }: TablesFound, known: readonly string[]): void {
  if (version === 0 || (fingerprint !== null && fingerprint === known[version - 1])) return;
  if (version > known.length && fingerprint !== null)
    throw new WaybillError(
      "SCHEMA_NEWER",
      `${place} has tables of version ${version}, and this code knows ${known.length} at most: upgrade waybill here`,
    );
  const found = `version ${version}${fingerprint === null ? "" : `, text ${fingerprint.slice(0, 12)}`}`;
  throw new WaybillError(
    "SCHEMA_UNRELEASED",
    `${place} has tables of an unreleased build of Waybill (${found}; this code makes version ${known.length}, text ${known.at(-1)!.slice(0, 12)}): ` +
      "let the build that made them publish what waits, then begin with new tables elsewhere, or drop these and migrate again",
  );
}
