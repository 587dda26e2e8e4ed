import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import { createLiveRelays, lookOf, type WrittenLease } from "../kit/expiry.ts";
import type { Connection, PgRow, Run } from "./connection.ts";
import { literal, type Names } from "./names.ts";
import { cells, indexable, list, ms } from "./rows.ts";

/** Columns of a lease in this table. `left_ms` is by the server's clock. */
export const leaseColumns = (table: string): string => `${renewalOf(table)} AS renewal, ${table}.ttl_ms,
  extract(epoch FROM ${table}.expires_at - clock_timestamp()) * 1000 AS left_ms`;

/** Identifies a renewal. Code of version 1 writes only a new `expires_at`, which then identifies it. */
export const renewalOf = (table: string): string =>
  `CASE WHEN ${table}.expires_at = ${table}.renewed_at + ${table}.ttl_ms * interval '1 millisecond' THEN ${table}.renewals::text
        ELSE 'until ' || extract(epoch FROM ${table}.expires_at) END`;

export const leaseOf = (row: PgRow): WrittenLease => ({
  renewal: row["renewal"]!,
  leftMs: Number(row["left_ms"]),
  ttlMs: Number(row["ttl_ms"]),
});

/** Leases are written by the server's clock, and judged by kit/expiry. */
export function createLeaseStore(connection: Connection, n: Names, clock: Clock): LeaseStore {
  const liveOf = createLiveRelays(clock, cells, leaseOf);
  const relays = `SELECT r.relay, ${leaseColumns("r")} FROM ${n.relays} r`;

  return {
    async look() {
      // One statement is one snapshot.
      const rows = await connection.run(
        `SELECT lane, owner, epoch, NULL AS relay, NULL AS strategy, NULL AS renewal, NULL AS ttl_ms, NULL AS left_ms, ${ms("clock_timestamp()")} AS now FROM ${n.lanes}
         UNION ALL SELECT NULL, NULL, NULL, r.relay, r.strategy, ${leaseColumns("r")}, NULL FROM ${n.relays} r ORDER BY lane, relay`,
      );
      return lookOf(rows, cells, liveOf);
    },
    renew: (relay, ttlMs, window = 0, strategy) =>
      connection.transaction(async (run) => {
        await run(
          `INSERT INTO ${n.relays} AS r (relay, started_at, renewed_at, expires_at, ttl_ms, renewals, "window", strategy)
           SELECT $1, t, t, t + $2::double precision * interval '1 millisecond', $2::double precision, 1, $3, $4 FROM clock_timestamp() AS t
           ON CONFLICT (relay) DO UPDATE SET renewed_at = excluded.renewed_at, expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms,
             renewals = r.renewals + 1, "window" = excluded."window", strategy = excluded.strategy`,
          [relay, ttlMs, window, strategy ?? null],
        );
        const rows = await run(relays);
        const live = new Set(liveOf(rows));
        const dead = rows.filter((row) => !live.has(row));
        if (dead.length > 0)
          await run(
            `DELETE FROM ${n.relays} r WHERE r.relay IN (
               SELECT r.relay FROM ${n.relays} r JOIN unnest($1::text[], $2::text[]) AS d (relay, renewal) ON r.relay = d.relay
               WHERE ${renewalOf("r")} = d.renewal FOR UPDATE OF r SKIP LOCKED)
             AND NOT EXISTS (SELECT 1 FROM ${n.lanes} l WHERE l.owner = r.relay)`,
            [dead.map((row) => row["relay"]), dead.map((row) => row["renewal"])],
          );
      }),
    take: (relay, lanes) =>
      connection.transaction(async (run) => {
        const wanted = await run(
          `SELECT lane, owner FROM ${n.lanes} WHERE lane = ANY ($2::smallint[]) AND owner IS DISTINCT FROM $1 ORDER BY lane FOR UPDATE SKIP LOCKED`,
          [relay, list(lanes)],
        );
        // The lanes are locked now, so the leases read here are newer than any change of these lanes.
        const live = new Set(wanted.some(({ owner }) => owner !== null) ? liveOf(await run(relays)).map((row) => row["relay"]!) : []);
        const free = wanted.filter(({ owner }) => owner === null || owner === undefined || !live.has(owner));
        if (free.length === 0) return new Map<number, bigint>();
        const taken = await run(
          `UPDATE ${n.lanes} SET owner = $1, epoch = epoch + 1 WHERE lane = ANY ($2::smallint[]) RETURNING lane, epoch`,
          [relay, list(free.map((row) => Number(row["lane"])))],
        );
        const won = new Map(taken.map((row) => [Number(row["lane"]), BigInt(row["epoch"]!)]));
        // Whoever reads the log owns all lanes. One row fences it, instead of 64.
        await run(`UPDATE ${n.tail} SET epoch = epoch + 1`);
        await suspect(run, n, list(won.keys()));
        return won;
      }),
    give: (relay, lanes) => connection.transaction((run) => giveBack(run, n, relay, list(lanes))),
    // One round trip: a draining relay must not need nine on a slow link, where each may be cut.
    async leave(relay) {
      const me = literal(relay);
      await connection.batch(
        `SELECT 1 FROM ${n.lanes} WHERE owner = ${me} ORDER BY lane FOR UPDATE`,
        `SELECT 1 FROM ${n.windows} WHERE relay = ${me} ORDER BY "window" FOR UPDATE`,
        `DELETE FROM ${n.windows} WHERE relay = ${me}`,
        `UPDATE ${n.lanes} SET owner = NULL WHERE owner = ${me}`,
        `DELETE FROM ${n.relays} WHERE relay = ${me}`,
      );
    },
  };
}

/** The events in a relay's windows when it lost its lanes may have crashed it. Only a crash with an event alone in the window counts. */
async function suspect(run: Run, n: Names, lanes: string): Promise<void> {
  await run(
    `INSERT INTO ${n.suspects} (seq, lane, aggregate_type, aggregate_id, width, deaths)
     SELECT o.seq, o.lane, o.aggregate_type, o.aggregate_id, greatest(w.width, a.width), (greatest(w.width, a.width) = 1)::integer
     FROM ${n.windows} w
     JOIN (SELECT relay, sum(cardinality(seqs)) AS width FROM ${n.windows} GROUP BY relay) a ON a.relay = w.relay
     CROSS JOIN LATERAL unnest(w.seqs) AS u (seq) JOIN ${n.outbox} o ON o.seq = u.seq
     WHERE o.lane = ANY ($1::smallint[]) AND o.status IN ('PENDING', 'FAILED') AND ${indexable}
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

/** Removes the events of these lanes from the windows, and deletes windows that are then empty. */
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
