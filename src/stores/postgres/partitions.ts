import type { Partitions } from "../../contracts/housekeeping.ts";
import { type Clock } from "../../core/clock.ts";
import { ahead, betweenTriesMs, nothing, tries, undropped } from "../kit/partitions.ts";
import { audit } from "./audit.ts";
import type { Connection, PgRow } from "./connection.ts";
import type { Names } from "./names.ts";

/** How long other sessions may have to queue behind us while we wait for a lock. The functions of the schema say the same. */
const lockTimeout = "500ms";

export const firstPartitions = (n: Names): string => `SELECT * FROM ${n.add_partitions}(${ahead}::integer)`;

export function createPartitions(connection: Connection, n: Names, clock: Clock): Partitions {
  const partitioned = async (): Promise<boolean> =>
    (await connection.run(`SELECT partitions IS NOT NULL AS partitioned FROM ${n.meta}`))[0]?.["partitioned"] === "t";
  return {
    async create() {
      if (!(await partitioned())) return nothing;
      const rows = await connection.run(`SELECT name, made, why FROM ${n.add_partitions}($1::integer)`, [ahead]);
      const [made, not] = [rows.filter(({ made }) => made === "t"), rows.filter(({ made }) => made !== "t")];
      return {
        ...nothing,
        created: made.map((row) => row["name"]!),
        undone: not.map((row) => `partition ${row["name"]!} was not made: ${row["why"]!}`),
      };
    },
    async drop(before, who, { emptied, signal }) {
      if (!(await partitioned())) return nothing;
      const left: string[] = [];
      const dropped: string[] = [];
      const undone: string[] = [];
      let [events, moved] = [0, 0];
      for (let tried = 1; ;) {
        const row = signal?.aborted === true ? undefined : await dropOne(connection, n, before, who, emptied, left);
        if (row === undefined) return { created: [], dropped, events, moved, undone };
        const name = row["name"]!;
        if (row["done"] === "dropped") {
          dropped.push(name);
          events += Number(row["events"]);
          moved += Number(row["moved"]);
        } else if (row["done"] === "busy" && tried++ < tries) {
          await clock.sleep(betweenTriesMs, signal);
          continue;
        } else {
          left.push(name);
          undone.push(`partition ${name} was not dropped: ${whyNot[row["done"] as keyof typeof whyNot]}`);
        }
        tried = 1;
      }
    },
  };
}

/** Drops the partition and writes its audit record in one transaction. */
function dropOne(
  connection: Connection,
  n: Names,
  before: Date,
  who: string,
  emptied: boolean,
  left: readonly string[],
): Promise<PgRow | undefined> {
  return connection.transaction(async (run) => {
    const [row] = await run(`SELECT name, done, events, moved FROM ${n.drop_partition}($1::timestamptz, $2::boolean, $3::text[])`, [
      before.toISOString(),
      emptied,
      left,
    ]);
    if (row?.["done"] === "dropped")
      await audit(run, n, "purge", who, Number(row["events"]), {
        before: before.toISOString(),
        partition: row["name"]!,
        moved: Number(row["moved"]),
      });
    return row;
  });
}

const whyNot = undropped(lockTimeout);
