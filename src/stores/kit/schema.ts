import { WaybillError } from "../../core/errors.ts";
import { refuseOther, type TablesFound } from "../../core/tables.ts";

export const partitionUnits = ["day", "week", "month"] as const;
export type PartitionUnit = (typeof partitionUnits)[number];

/** Refuses tables that this code cannot work with. `known` has the fingerprint of each version. */
export function checkTables(place: string, found: TablesFound, known: readonly string[], url: string): void {
  refuseOther(place, found, known);
  if (found.version === known.length) return;
  const lacks =
    found.version === 0 ? "has no Waybill tables" : `has tables of version ${found.version}, and this code needs ${known.length}`;
  throw new WaybillError("NOT_MIGRATED", `${place} ${lacks}: run waybill migrate --store ${url}`);
}

/** The first line of printed statements. */
export const inOneTransaction = "-- Run all of it in one transaction, as migration tools do.";

/** A table full of events is never converted to another layout while it is in use. */
export function refuseLayout(place: string, asked: PartitionUnit | null, unit: PartitionUnit | null): void {
  if (asked === null || asked === unit) return;
  const is = unit === null ? "has no partitions" : `is partitioned by ${unit}`;
  throw new WaybillError(
    "INVALID_OPTION",
    `partitions: "${asked}" was asked for, and the outbox of ${place} ${is}: leave the option out, or begin with new tables under another name or schema`,
  );
}
