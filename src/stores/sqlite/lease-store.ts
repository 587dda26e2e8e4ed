import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import { createLiveRelays, lookOf } from "../kit/expiry.ts";
import type { Connection, Statements } from "../../drivers/sqlite/connection.ts";
import { cells, iso, leaseOf } from "./rows.ts";
import { now } from "./predicates.ts";

export function createLeaseStore(connection: Connection, clock: Clock): LeaseStore {
  const liveOf = createLiveRelays(clock, cells, (row) => leaseOf(row, clock));
  const liveNames = (statements: Statements): string =>
    JSON.stringify(liveOf(statements.all("SELECT relay, expires_at, ttl_ms FROM waybill_relays")).map((row) => String(row["relay"])));

  return {
    look: () =>
      connection.read((statements) => {
        // One statement is one snapshot.
        const rows = statements.all(
          `SELECT lane, owner, epoch, NULL AS relay, NULL AS expires_at, NULL AS ttl_ms, NULL AS strategy, ${now} AS now FROM waybill_lanes
           UNION ALL SELECT NULL, NULL, NULL, relay, expires_at, ttl_ms, strategy, NULL FROM waybill_relays ORDER BY lane, relay`,
        );
        return lookOf(rows, cells, liveOf);
      }),
    renew: (relay, ttlMs, window = 0, strategy) =>
      connection.write((statements) => {
        const nowMs = clock.now();
        statements.run(
          `INSERT INTO waybill_relays (relay, started_at, expires_at, ttl_ms, window, strategy) VALUES (?, ?, ?, ?, ?, ?)
           ON CONFLICT DO UPDATE SET expires_at = excluded.expires_at, ttl_ms = excluded.ttl_ms, window = excluded.window,
             strategy = excluded.strategy`,
          [relay, iso(nowMs), iso(nowMs + ttlMs), ttlMs, window, strategy ?? null],
        );
        statements.run(
          `DELETE FROM waybill_relays WHERE relay NOT IN (SELECT value FROM json_each(?))
             AND relay NOT IN (SELECT owner FROM waybill_lanes WHERE owner IS NOT NULL)`,
          [liveNames(statements)],
        );
      }),
    take: (relay, lanes) =>
      connection.write((statements) => {
        const taken = statements.all(
          `UPDATE waybill_lanes SET owner = ?1, epoch = epoch + 1
           WHERE lane IN (SELECT value FROM json_each(?2))
             AND (owner IS NULL OR owner <> ?1 AND owner NOT IN (SELECT value FROM json_each(?3)))
           RETURNING lane, epoch`,
          [relay, JSON.stringify(lanes), liveNames(statements)],
        );
        const won = new Map(taken.map((row) => [Number(row["lane"]), BigInt(row["epoch"] as number)]));
        suspect(statements, JSON.stringify([...won.keys()]));
        return won;
      }),
    give: (relay, lanes) => connection.write((statements) => giveBack(statements, relay, lanes)),
    leave: (relay) =>
      connection.write((statements) => {
        giveBack(
          statements,
          relay,
          statements.all("SELECT lane FROM waybill_lanes WHERE owner = ?", [relay]).map((row) => Number(row["lane"])),
        );
        statements.run("DELETE FROM waybill_relays WHERE relay = ?", [relay]);
      }),
  };
}

/** An event that a relay had in hand when it lost its lanes may have crashed it. Only a crash alone in a window counts against it. */
function suspect(statements: Statements, lanes: string): void {
  statements.run(
    `INSERT INTO waybill_suspects (seq, lane, aggregate_type, aggregate_id, width, deaths)
     SELECT o.seq, w.lane, o.aggregate_type, o.aggregate_id, max(w.width, a.width), max(w.width, a.width) = 1
     FROM waybill_windows w
     JOIN (SELECT relay, sum(json_array_length(seqs)) AS width FROM waybill_windows GROUP BY relay) a ON a.relay = w.relay
     JOIN json_each(w.seqs) j JOIN outbox o ON o.seq = j.value
     WHERE w.lane IN (SELECT value FROM json_each(?)) AND o.status IN ('PENDING', 'FAILED')
     ON CONFLICT DO UPDATE SET width = excluded.width, deaths = CASE WHEN excluded.width = 1 THEN deaths + 1 ELSE 0 END`,
    [lanes],
  );
  statements.run("DELETE FROM waybill_windows WHERE lane IN (SELECT value FROM json_each(?))", [lanes]);
}

function giveBack(statements: Statements, relay: string, lanes: readonly number[]): void {
  const list = JSON.stringify(lanes);
  statements.run("DELETE FROM waybill_windows WHERE relay = ? AND lane IN (SELECT value FROM json_each(?))", [relay, list]);
  statements.run("UPDATE waybill_lanes SET owner = NULL WHERE owner = ? AND lane IN (SELECT value FROM json_each(?))", [relay, list]);
}
