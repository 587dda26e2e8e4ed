import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Clock } from "../../core/clock.ts";
import { createLiveRelays, lookOf, type WrittenLease } from "../kit/expiry.ts";
import type { Connection, MysqlRow, MysqlSession } from "./connection.ts";
import type { Names } from "./names.ts";
import { bigOf, cells, numberOf, sizeOf, textOf, textOrNull } from "./rows.ts";
import { list, type SqlValue } from "./values.ts";
import { keepWindow, lockWindows, windowsOf, type StoredWindow } from "./windows.ts";

/** The lease columns of a table, with the time that is left by the server's clock. */
export const leaseColumns = (table: string): string => `${table}.renewals AS renewal, ${table}.ttl_ms,
  TIMESTAMPDIFF(MICROSECOND, UTC_TIMESTAMP(6), ${table}.expires_at) DIV 1000 AS left_ms`;

export const leaseOf = (row: MysqlRow): WrittenLease => ({
  renewal: textOf(row, "renewal"),
  leftMs: numberOf(row, "left_ms"),
  ttlMs: numberOf(row, "ttl_ms"),
});

/** Written by the server's clock, judged by kit/expiry: a clock step takes no live relay's lanes, and keeps no dead relay's. */
export function createLeaseStore(connection: Connection, n: Names, clock: Clock): LeaseStore {
  const liveOf = createLiveRelays(clock, cells, leaseOf);
  const relays = `SELECT CAST(r.relay AS BINARY) AS relay, ${leaseColumns("r")} FROM ${n.relays} r`;
  return {
    async look() {
      // One statement is one snapshot.
      const rows = await connection.run(
        `SELECT lane, CAST(owner AS BINARY) AS owner, epoch, NULL AS relay, NULL AS strategy, NULL AS renewal, NULL AS ttl_ms, NULL AS left_ms, UTC_TIMESTAMP(6) AS now FROM ${n.lanes}
         UNION ALL SELECT NULL, NULL, NULL, CAST(r.relay AS BINARY), CAST(r.strategy AS BINARY), ${leaseColumns("r")}, NULL FROM ${n.relays} r
         ORDER BY lane, relay`,
      );
      return lookOf(rows, cells, liveOf);
    },
    async renew(relay, ttlMs, window = 0, strategy) {
      const ttl = Math.round(ttlMs);
      await connection.change(
        `INSERT INTO ${n.relays} (relay, renewed_at, expires_at, ttl_ms, renewals, \`window\`, strategy)
         SELECT ?, t.now, t.now + INTERVAL ${ttl * 1000} MICROSECOND, ${ttl}, 1, ?, ? FROM (SELECT UTC_TIMESTAMP(6) AS now) t
         ON DUPLICATE KEY UPDATE renewed_at = VALUES(renewed_at), expires_at = VALUES(expires_at), ttl_ms = VALUES(ttl_ms),
           renewals = ${n.relays}.renewals + 1, \`window\` = VALUES(\`window\`), strategy = VALUES(strategy)`,
        [relay, window, strategy ?? null],
      );
      const rows = await connection.run(relays);
      const live = new Set(liveOf(rows));
      await forgetDead(
        connection,
        n,
        rows.filter((row) => !live.has(row)),
      );
    },
    take: (relay, lanes) =>
      connection.transaction(async (session) => {
        const rows = await session.run(
          `SELECT lane, epoch, CAST(owner AS BINARY) AS owner FROM ${n.lanes} FORCE INDEX (PRIMARY) WHERE lane IN (${list(lanes)})
           ORDER BY lane FOR UPDATE SKIP LOCKED`,
        );
        // The lane rows are locked now, so the leases that are read here are newer than any change of those rows.
        const busy = new Set([relay, ...liveOf(await session.run(relays)).map((row) => textOf(row, "relay"))]);
        const free = rows.filter((row) => row["owner"] === null || !busy.has(textOf(row, "owner")));
        const won = new Map(free.map((row) => [numberOf(row, "lane"), bigOf(row, "epoch") + 1n]));
        if (won.size === 0) return won;
        await session.change(
          `UPDATE ${n.lanes} FORCE INDEX (PRIMARY) SET owner = ?, epoch = epoch + 1 WHERE lane IN (${list(won.keys())})`,
          [relay],
        );
        const owners = [...new Set(free.flatMap((row) => textOrNull(row, "owner") ?? []))];
        await suspect(session, n, owners, new Set(won.keys()));
        return won;
      }),
    give: (relay, lanes) => connection.transaction((session) => giveBack(session, n, relay, lanes)),
    async leave(relay) {
      const rows = await connection.run(`SELECT lane FROM ${n.lanes} WHERE owner = ?`, [relay]);
      await connection.transaction(async (session) => {
        await giveBack(
          session,
          n,
          relay,
          rows.map((row) => numberOf(row, "lane")),
        );
        await session.change(`DELETE r FROM ${n.relays} r FORCE INDEX (PRIMARY) WHERE r.relay = ?`, [relay]);
      });
    },
  };
}

/** By name and renewal, and only relays that own no lane: two relays that clean up at once do not wait for each other's rows. */
async function forgetDead(connection: Connection, n: Names, dead: readonly MysqlRow[]): Promise<void> {
  if (dead.length === 0) return;
  const owners = await connection.run(`SELECT DISTINCT CAST(owner AS BINARY) AS owner FROM ${n.lanes} WHERE owner IS NOT NULL`);
  const needed = new Set(owners.map((row) => textOf(row, "owner")));
  const gone = dead.filter((row) => !needed.has(textOf(row, "relay")));
  if (gone.length > 0)
    await connection.change(
      `DELETE r FROM ${n.relays} r FORCE INDEX (PRIMARY) WHERE ${gone.map(() => "r.relay = ? AND r.renewals = ?").join(" OR ")}`,
      gone.flatMap((row) => [textOf(row, "relay"), bigOf(row, "renewal")]),
    );
}

/** An event in the windows of a relay that lost its lanes may have crashed it. Only a death alone in a window counts against an event. */
async function suspect(session: MysqlSession, n: Names, owners: readonly string[], lanes: ReadonlySet<number>): Promise<void> {
  const windows = await lockWindows(session, n, await windowsOf(session, n, owners));
  const inFlight = new Map<string, number>();
  for (const { relay, parts } of windows) inFlight.set(relay, (inFlight.get(relay) ?? 0) + sizeOf(parts));
  const width = new Map<bigint, number>();
  for (const window of windows)
    for (const seq of within(window, lanes)) width.set(seq, Math.max(window.width, inFlight.get(window.relay)!));
  if (width.size > 0) {
    const rows = await session.run(
      `SELECT seq, lane, CAST(aggregate_type AS BINARY) AS aggregate_type, CAST(aggregate_id AS BINARY) AS aggregate_id FROM ${n.outbox} FORCE INDEX (PRIMARY)
       WHERE seq IN (${list(width.keys())}) AND status IN ('PENDING', 'FAILED')`,
    );
    const values = rows.flatMap((row): SqlValue[] => {
      const [seq, wide] = [bigOf(row, "seq"), width.get(bigOf(row, "seq"))!];
      return [seq, numberOf(row, "lane"), textOf(row, "aggregate_type"), textOf(row, "aggregate_id"), wide, wide === 1 ? 1 : 0];
    });
    if (rows.length > 0)
      await session.change(
        `INSERT INTO ${n.suspects} (seq, lane, aggregate_type, aggregate_id, width, deaths) VALUES ${rows.map(() => "(?, ?, ?, ?, ?, ?)").join(", ")}
         ON DUPLICATE KEY UPDATE deaths = CASE WHEN VALUES(width) = 1 THEN deaths + 1 ELSE 0 END, width = VALUES(width)`,
        values,
      );
  }
  await forget(session, n, windows, lanes);
}

async function giveBack(session: MysqlSession, n: Names, relay: string, lanes: readonly number[]): Promise<void> {
  const rows = await session.run(
    `SELECT lane FROM ${n.lanes} FORCE INDEX (PRIMARY) WHERE lane IN (${list([...lanes].sort((a, b) => a - b))}) AND owner = ? ORDER BY lane FOR UPDATE`,
    [relay],
  );
  const mine = new Set(rows.map((row) => numberOf(row, "lane")));
  if (mine.size === 0) return;
  await forget(session, n, await lockWindows(session, n, await windowsOf(session, n, [relay])), mine);
  await session.change(`UPDATE ${n.lanes} FORCE INDEX (PRIMARY) SET owner = NULL WHERE lane IN (${list(mine)})`);
}

/** Removes the events of these lanes from the windows. */
async function forget(session: MysqlSession, n: Names, windows: readonly StoredWindow[], lanes: ReadonlySet<number>): Promise<void> {
  for (const window of windows) {
    if (within(window, lanes).length === 0) continue;
    await keepWindow(session, n, window.id, new Map([...window.parts].filter(([lane]) => !lanes.has(lane))));
  }
}

const within = ({ parts }: StoredWindow, lanes: ReadonlySet<number>): readonly bigint[] =>
  [...parts].flatMap(([lane, seqs]) => (lanes.has(lane) ? seqs : []));
