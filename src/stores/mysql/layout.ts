import { partitionUnits, refuseLayout, type PartitionUnit } from "../kit/schema.ts";
import type { Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { numberOf, textOf, textOrNull } from "./rows.ts";

/** The partition for events that are moved out of another one. Its comment holds the unit. */
export const rest = "rest";
/** Takes whatever comes after all others, so that no insert is ever refused. */
export const later = "later";
/** Where `rest` ends; and a moment within it. */
export const restEnds = "'1971-01-01'";
export const inRest = "'1970-01-01'";

export interface TablePartition {
  readonly name: string;
  /** Everything in it was added before. Null for the last one. */
  readonly upper: Date | null;
  /** The server's estimate. */
  readonly rows: number;
}

export interface Layout {
  /** Null for a table without partitions of ours. */
  readonly unit: PartitionUnit | null;
  /** In the order of time. */
  readonly parts: readonly TablePartition[];
}

/** Null where there is no table. */
export async function layoutOf(run: Run, n: Names): Promise<Layout | null> {
  const rows = await run(
    `SELECT PARTITION_NAME AS name, PARTITION_DESCRIPTION AS ends, PARTITION_COMMENT AS comment, TABLE_ROWS AS guess FROM information_schema.PARTITIONS
     WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ? ORDER BY PARTITION_ORDINAL_POSITION`,
    [n.schema, n.plain("outbox")],
  );
  if (rows[0] === undefined) return null;
  const comment = rows.flatMap((row) => (textOrNull(row, "name") === rest ? [textOrNull(row, "comment")] : []))[0];
  const unit = partitionUnits.find((each) => each === comment);
  if (unit === undefined) return { unit: null, parts: [] };
  return {
    unit,
    parts: rows.map((row) => ({ name: textOf(row, "name"), upper: momentOf(textOf(row, "ends")), rows: numberOf(row, "guess") })),
  };
}

/** As the server writes it: '2026-01-31', or with a time. */
function momentOf(ends: string): Date | null {
  const [, day, time = "00:00:00"] = /^'(\d+-\d+-\d+)(?: ([\d:.]+))?'$/.exec(ends) ?? [];
  return day === undefined ? null : new Date(`${day}T${time}Z`);
}

export async function refuseOtherLayout(run: Run, n: Names, place: string, asked: PartitionUnit | null): Promise<void> {
  const layout = asked === null ? null : await layoutOf(run, n);
  if (layout !== null) refuseLayout(place, asked, layout.unit);
}

/** The beginning of the unit that is `after` units after the one with the moment `at`, in UTC. Weeks begin on Monday. */
export function beginningOf(unit: PartitionUnit, at: Date, after: number): Date {
  const [year, month, day] = [at.getUTCFullYear(), at.getUTCMonth(), at.getUTCDate()];
  if (unit === "month") return new Date(Date.UTC(year, month + after, 1));
  if (unit === "day") return new Date(Date.UTC(year, month, day + after));
  return new Date(Date.UTC(year, month, day - ((at.getUTCDay() + 6) % 7) + 7 * after));
}

export const dayOf = (at: Date): string => at.toISOString().slice(0, 10);
