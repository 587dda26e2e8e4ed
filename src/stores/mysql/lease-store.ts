import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { Connection, Session } from "./connection.ts";
import type { Names } from "./names.ts";
import { bigOf, numberOf, sizeOf, textOf, textOrNull } from "./rows.ts";
import { list, type Value } from "./values.ts";
import { keepWindow, lockWindows, windowsOf, type StoredWindow } from "./windows.ts";

/** Time is the server's, in every statement. */
export function createLeaseStore(connection: Connection, n: Names): LeaseStore {
  return {
    async look() {
      // One statement is one snapshot.
      const rows = await connection.run(
        `SELECT lane, CAST(owner AS BINARY) AS owner, epoch, NULL AS live, NULL AS strategy FROM ${n.lanes}
         UNION ALL SELECT NULL, NULL, NULL, CAST(relay AS BINARY), CAST(strategy AS BINARY) FROM ${n.relays} WHERE expires_at > UTC_TIMESTAMP(6)
         ORDER BY lane, live`,
      );
      const [lanes, live] = [rows.filter((row) => row["live"] === null), rows.filter((row) => row["live"] !== null)];
      return {
        lanes: lanes.map((row) => ({ lane: numberOf(row, "lane"), owner: textOrNull(row, "owner"), epoch: bigOf(row, "epoch") })),
        live: live.map((row) => textOf(row, "live")),
        strategies: new Map(
          live.flatMap((row) => (row["strategy"] === null ? [] : [[textOf(row, "live"), textOf(row, "strategy")] as const])),
        ),
      };
    },
    async renew(relay, ttlMs, window = 0, strategy) {
      await connection.change(
        `INSERT INTO ${n.relays} (relay, expires_at, \`window\`, strategy) VALUES (?, UTC_TIMESTAMP(6) + INTERVAL ? MICROSECOND, ?, ?)
         ON DUPLICATE KEY UPDATE expires_at = VALUES(expires_at), \`window\` = VALUES(\`window\`), strategy = VALUES(strategy)`,
        [relay, Math.round(ttlMs * 1000), window, strategy ?? null],
      );
      await forgetDead(connection, n);
    },
    take: (relay, lanes) =>
      connection.transaction(async (session) => {
        const rows = await session.run(
          `SELECT lane, epoch, CAST(owner AS BINARY) AS owner FROM ${n.lanes} FORCE INDEX (PRIMARY) WHERE lane IN (${list(lanes)})
           ORDER BY lane FOR UPDATE SKIP LOCKED`,
        );
        // Now that the rows are locked, what is read of the leases is younger than any change of theirs.
        const alive = await session.run(`SELECT CAST(relay AS BINARY) AS relay FROM ${n.relays} WHERE expires_at > UTC_TIMESTAMP(6)`);
        const busy = new Set([relay, ...alive.map((row) => textOf(row, "relay"))]);
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

/** By name, and only those that nobody needs to know: two that tidy up at once do not wait for each other's rows. */
async function forgetDead(connection: Connection, n: Names): Promise<void> {
  const dead = await connection.run(
    `SELECT CAST(r.relay AS BINARY) AS relay FROM ${n.relays} r
     WHERE r.expires_at <= UTC_TIMESTAMP(6) AND NOT EXISTS (SELECT 1 FROM ${n.lanes} l WHERE l.owner = r.relay)`,
  );
  if (dead.length > 0)
    await connection.change(
      `DELETE r FROM ${n.relays} r FORCE INDEX (PRIMARY) WHERE r.relay IN (${dead.map(() => "?").join(", ")}) AND r.expires_at <= UTC_TIMESTAMP(6)`,
      dead.map((row) => textOf(row, "relay")),
    );
}

/** What a relay had in hand when it lost its lanes may be what ended it. Only a death alone in a window counts against an event. */
async function suspect(session: Session, n: Names, owners: readonly string[], lanes: ReadonlySet<number>): Promise<void> {
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
    const values = rows.flatMap((row): Value[] => {
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

async function giveBack(session: Session, n: Names, relay: string, lanes: readonly number[]): Promise<void> {
  const rows = await session.run(
    `SELECT lane FROM ${n.lanes} FORCE INDEX (PRIMARY) WHERE lane IN (${list([...lanes].sort((a, b) => a - b))}) AND owner = ? ORDER BY lane FOR UPDATE`,
    [relay],
  );
  const mine = new Set(rows.map((row) => numberOf(row, "lane")));
  if (mine.size === 0) return;
  await forget(session, n, await lockWindows(session, n, await windowsOf(session, n, [relay])), mine);
  await session.change(`UPDATE ${n.lanes} FORCE INDEX (PRIMARY) SET owner = NULL WHERE lane IN (${list(mine)})`);
}

/** Takes what lies in these lanes out of the windows. */
async function forget(session: Session, n: Names, windows: readonly StoredWindow[], lanes: ReadonlySet<number>): Promise<void> {
  for (const window of windows) {
    if (within(window, lanes).length === 0) continue;
    await keepWindow(session, n, window.id, new Map([...window.parts].filter(([lane]) => !lanes.has(lane))));
  }
}

const within = ({ parts }: StoredWindow, lanes: ReadonlySet<number>): readonly bigint[] =>
  [...parts].flatMap(([lane, seqs]) => (lanes.has(lane) ? seqs : []));
