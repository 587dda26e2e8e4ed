import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Connection, Run } from "./connection.ts";
import type { Names } from "./names.ts";
import { list } from "./rows.ts";

/** Time is the server's, in every statement. */
export function createLeaseStore(connection: Connection, n: Names): LeaseStore {
  return {
    async look() {
      // One statement is one snapshot.
      const rows = await connection.run(
        `SELECT lane, owner, epoch, NULL AS live, NULL AS strategy FROM ${n.lanes}
         UNION ALL SELECT NULL, NULL, NULL, relay, strategy FROM ${n.relays} WHERE expires_at > clock_timestamp() ORDER BY lane, live`,
      );
      return {
        lanes: rows
          .filter(({ live }) => live === null)
          .map((row) => ({ lane: Number(row["lane"]), owner: row["owner"] ?? null, epoch: BigInt(row["epoch"]!) })),
        live: rows.flatMap(({ live }) => live ?? []),
        strategies: new Map(rows.flatMap(({ live, strategy }) => (live && strategy ? [[live, strategy] as const] : []))),
      };
    },
    renew: (relay, ttlMs, window = 0, strategy) =>
      connection.transaction(async (run) => {
        await run(
          `INSERT INTO ${n.relays} (relay, started_at, expires_at, "window", strategy)
           VALUES ($1, clock_timestamp(), clock_timestamp() + $2::double precision * interval '1 millisecond', $3, $4)
           ON CONFLICT (relay) DO UPDATE SET expires_at = excluded.expires_at, "window" = excluded."window", strategy = excluded.strategy`,
          [relay, ttlMs, window, strategy ?? null],
        );
        await run(
          `DELETE FROM ${n.relays} r WHERE r.relay IN (
             SELECT relay FROM ${n.relays} WHERE expires_at <= clock_timestamp() FOR UPDATE SKIP LOCKED)
           AND NOT EXISTS (SELECT 1 FROM ${n.lanes} l WHERE l.owner = r.relay)`,
        );
      }),
    take: (relay, lanes) =>
      connection.transaction(async (run) => {
        const taken = await run(
          `WITH free AS (
             SELECT l.lane FROM ${n.lanes} l
             WHERE l.lane = ANY ($2::smallint[]) AND (l.owner IS NULL OR l.owner <> $1
               AND NOT EXISTS (SELECT 1 FROM ${n.relays} r WHERE r.relay = l.owner AND r.expires_at > clock_timestamp()))
             ORDER BY l.lane FOR UPDATE SKIP LOCKED)
           UPDATE ${n.lanes} l SET owner = $1, epoch = l.epoch + 1 FROM free WHERE l.lane = free.lane RETURNING l.lane, l.epoch`,
          [relay, list(lanes)],
        );
        const won = new Map(taken.map((row) => [Number(row["lane"]), BigInt(row["epoch"]!)]));
        if (won.size > 0) await suspect(run, n, list(won.keys()));
        return won;
      }),
    give: (relay, lanes) => connection.transaction((run) => giveBack(run, n, relay, list(lanes))),
    leave: (relay) =>
      connection.transaction(async (run) => {
        const rows = await run(`SELECT lane FROM ${n.lanes} WHERE owner = $1 ORDER BY lane FOR UPDATE`, [relay]);
        await giveBack(run, n, relay, list(rows.map((row) => Number(row["lane"]))));
        await run(`DELETE FROM ${n.windows} WHERE relay = $1`, [relay]);
        await run(`DELETE FROM ${n.relays} WHERE relay = $1`, [relay]);
      }),
  };
}

/** What a relay had in hand when it lost its lanes may be what ended it. Only a death alone in a window counts against an event. */
async function suspect(run: Run, n: Names, lanes: string): Promise<void> {
  await run(
    `INSERT INTO ${n.suspects} (seq, lane, aggregate_type, aggregate_id, width, deaths)
     SELECT o.seq, o.lane, o.aggregate_type, o.aggregate_id, greatest(w.width, a.width), (greatest(w.width, a.width) = 1)::integer
     FROM ${n.windows} w
     JOIN (SELECT relay, sum(cardinality(seqs)) AS width FROM ${n.windows} GROUP BY relay) a ON a.relay = w.relay
     CROSS JOIN LATERAL unnest(w.seqs) AS u (seq) JOIN ${n.outbox} o ON o.seq = u.seq
     WHERE o.lane = ANY ($1::smallint[]) AND o.status IN ('PENDING', 'FAILED')
     ON CONFLICT (seq) DO UPDATE SET width = excluded.width,
       deaths = CASE WHEN excluded.width = 1 THEN ${n.suspects}.deaths + 1 ELSE 0 END`,
    [lanes],
  );
  await forgetWindows(run, n, "true", [lanes]);
}

async function giveBack(run: Run, n: Names, relay: string, lanes: string): Promise<void> {
  await run(`SELECT 1 FROM ${n.lanes} WHERE owner = $1 AND lane = ANY ($2::smallint[]) ORDER BY lane FOR UPDATE`, [relay, lanes]);
  await forgetWindows(run, n, "w.relay = $2", [lanes, relay]);
  await run(`UPDATE ${n.lanes} SET owner = NULL WHERE owner = $1 AND lane = ANY ($2::smallint[])`, [relay, lanes]);
}

/** Takes what lies in these lanes out of the windows; a window of which nothing is left goes. */
async function forgetWindows(run: Run, n: Names, which: string, values: readonly unknown[]): Promise<void> {
  await run(`SELECT 1 FROM ${n.windows} w WHERE ${which} AND $1 <> '' ORDER BY "window" FOR UPDATE`, values);
  await run(
    `WITH rest AS (
       SELECT w."window", ARRAY(
         SELECT u.seq FROM unnest(w.seqs) AS u (seq) LEFT JOIN ${n.outbox} o ON o.seq = u.seq
         WHERE o.lane IS NULL OR NOT o.lane = ANY ($1::smallint[])) AS seqs
       FROM ${n.windows} w WHERE ${which}
     ), gone AS (DELETE FROM ${n.windows} w USING rest r WHERE w."window" = r."window" AND cardinality(r.seqs) = 0)
     UPDATE ${n.windows} w SET seqs = r.seqs FROM rest r
     WHERE w."window" = r."window" AND cardinality(r.seqs) > 0 AND cardinality(r.seqs) <> cardinality(w.seqs)`,
    values,
  );
}
