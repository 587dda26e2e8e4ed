import type { PartitionReport, Partitions } from "../../contracts/housekeeping.ts";
import type { Clock } from "../../core/clock.ts";
import { persist } from "../../core/time.ts";
import { ahead, betweenTriesMs, mostMoved, nothing, tries, undropped } from "../kit/partitions.ts";
import type { PartitionUnit } from "../kit/schema.ts";
import { audit } from "./audit.ts";
import type { Connection, MysqlSession } from "./connection.ts";
import { isConflict } from "./driver.ts";
import { beginningOf, dayOf, inRest, later, layoutOf, rest, restEnds, type TablePartition } from "./layout.ts";
import type { Names } from "./names.ts";
import { dateOf, isSet, numberOf, textOf } from "./rows.ts";
import { literal } from "./values.ts";

/** How many rows one transaction moves. Relays stand still meanwhile. */
const moveBatch = 2_000;
/** The table is not locked while more rows than this are left to move. */
const fewLeft = 1_000;
const mostBatches = 1_000;
/** A partition of fewer events is counted, a larger one estimated. */
const rowsCounted = 1_000_000;
/** How long we wait for a lock, while other sessions queue behind us. The server takes whole seconds only. */
const lockSeconds = 1;

/** The events that must not be dropped with a partition. The index `state` covers this condition. */
const stays = (before: Date): string =>
  `(status IN ('PENDING', 'FAILED', 'BLOCKED', 'DEAD') OR status = 'PUBLISHED' AND (published_at >= ${literal(before)} OR published_at IS NULL))`;

const { full, filled, busy } = undropped(`${lockSeconds} s`);

export function createPartitions(connection: Connection, n: Names, clock: Clock): Partitions {
  return {
    create: () => connection.session((session) => alone(session, n, () => addPartitions(session, n, clock))),
    drop: (before, who, { emptied, signal }) =>
      connection.session((session) =>
        alone(session, n, async () => {
          let report = nothing;
          const { parts = [] } = (await layoutOf(session.run, n)) ?? {};
          const old = parts.filter((part) => mayDrop(part, before));
          for (const part of old) {
            if (signal?.aborted === true) break;
            const done = await patiently(clock, () => dropOne(session, n, part, before, emptied), signal);
            if (typeof done !== "string") {
              const { events, moved } = done;
              const dropped = [...report.dropped, part.name];
              report = { ...report, dropped, events: report.events + events, moved: report.moved + moved };
              await audit(session.change, n, "purge", who, events, { before: before.toISOString(), partition: part.name, moved });
            } else report = { ...report, undone: [...report.undone, `partition ${part.name} was not dropped: ${done}`] };
          }
          return report;
        }),
      ),
  };
}

const mayDrop = ({ name, upper }: TablePartition, before: Date): boolean => name !== rest && upper !== null && upper <= before;

/** If another session is doing this, leaves the work to it: two would wait for each other. */
async function alone({ run, server }: MysqlSession, n: Names, work: () => Promise<PartitionReport>): Promise<PartitionReport> {
  const name = `CONCAT('waybill.partitions.', CRC32(CONCAT(COALESCE(${literal(n.schema)}, DATABASE(), ''), '.', ${literal(n.plain("outbox"))})))`;
  // MySQL's statistics of the table may be a day old otherwise.
  const fresh = server.mariadb ? "0" : "@@information_schema_stats_expiry";
  const [turn] = await run(`SELECT GET_LOCK(${name}, 0) AS mine, @@lock_wait_timeout AS patience, ${fresh} AS expiry`);
  if (!isSet(turn, "mine")) return nothing;
  const set = (patience: number, expiry: number): string =>
    `SET SESSION lock_wait_timeout = ${patience}${server.mariadb ? "" : `, information_schema_stats_expiry = ${expiry}`}`;
  try {
    await run(set(lockSeconds, 0));
    return await work();
  } finally {
    await run(set(numberOf(turn!, "patience"), numberOf(turn!, "expiry")));
    await run(`DO RELEASE_LOCK(${name})`);
  }
}

/** Gives way to other users of the table, and retries. */
function patiently<T>(clock: Clock, work: () => Promise<T>, signal?: AbortSignal): Promise<T | string> {
  const trying = persist(work, (error, tried) =>
    isConflict(error) && tried < tries && signal?.aborted !== true ? clock.sleep(betweenTriesMs, signal) : null,
  );
  return trying.catch((error: unknown) => {
    if (isConflict(error)) return busy;
    throw error;
  });
}

export const firstPartitions = (session: MysqlSession, n: Names, clock: Clock): Promise<PartitionReport> =>
  alone(session, n, () => addPartitions(session, n, clock));

async function addPartitions(session: MysqlSession, n: Names, clock: Clock): Promise<PartitionReport> {
  const { unit = null, parts: there = [] } = (await layoutOf(session.run, n)) ?? {};
  if (unit === null) return nothing;
  const [now] = await session.run("SELECT UTC_TIMESTAMP(6) AS now");
  const missing = missingIn(unit, there, dateOf(now!, "now"));
  if (missing.length === 0) return nothing;
  const undone = (why: string): PartitionReport => ({
    ...nothing,
    undone: missing.map(({ name }) => `partition ${name} was not made: ${why}`),
  });
  if (!(await emptyLater(session, n))) return undone(`too many events are in the partition ${later} already`);
  const parts = missing.map(({ name, end }) => `PARTITION ${name} VALUES LESS THAN ('${end}')`);
  const done = await patiently(clock, () =>
    locked(session, n, async () => {
      await session.change(move(n, later, "PRIMARY", "TRUE"));
      await keepNumbers(session, n);
      await session.run(
        `ALTER TABLE ${n.outbox} REORGANIZE PARTITION ${later} INTO (${[...parts, `PARTITION ${later} VALUES LESS THAN (MAXVALUE)`].join(", ")})`,
      );
    }),
  );
  return typeof done === "string" ? undone(done) : { ...nothing, created: missing.map(({ name }) => name) };
}

/** Ranges have no gaps: after a long silence, the first one begins where the last one ended. */
function missingIn(
  unit: PartitionUnit,
  parts: readonly TablePartition[],
  now: Date,
): readonly { readonly name: string; readonly end: string }[] {
  const last = Math.max(...parts.map(({ upper }) => upper?.getTime() ?? 0));
  return Array.from({ length: ahead + 1 }, (_, after) => [beginningOf(unit, now, after), beginningOf(unit, now, after + 1)] as const)
    .filter(([, end]) => end.getTime() > last)
    .map(([begin, end]) => ({ name: `p${dayOf(begin).replaceAll("-", "")}`, end: dayOf(end) }));
}

/** If no process made partitions for a while, events are in `later`. Moves them out in batches, but for a few that come meanwhile. */
async function emptyLater(session: MysqlSession, n: Names): Promise<boolean> {
  for (let batch = 0; batch < mostBatches; batch++) {
    const [found] = await session.run(
      `SELECT COUNT(*) AS n FROM (SELECT 1 FROM ${n.outbox} PARTITION (${later}) LIMIT ${fewLeft + 1}) found`,
    );
    if (numberOf(found!, "n") <= fewLeft) return true;
    await moveSome(session, n, later, "PRIMARY", "TRUE");
  }
  return false;
}

/**
 * One transaction, under the locks of all lanes: no relay or operator claims, settles, redrives or discards meanwhile, and no scan that
 * reads one partition after the other misses a row on its way. The row keeps its `seq`, and so its place.
 */
async function moveSome({ run, change }: MysqlSession, n: Names, from: string, index: string, which: string): Promise<number> {
  await run("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
  await run("START TRANSACTION");
  try {
    await run(`SELECT lane FROM ${n.lanes} FORCE INDEX (PRIMARY) ORDER BY lane FOR UPDATE`);
    const moved = await change(move(n, from, index, which));
    await run("COMMIT");
    return moved;
  } catch (error) {
    await run("ROLLBACK").catch(() => undefined);
    throw error;
  }
}

const move = (n: Names, from: string, index: string, which: string): string =>
  `UPDATE ${n.outbox} PARTITION (${rest}, ${quoted(from)}) FORCE INDEX (${index}) SET placed_at = ${inRest}
   WHERE placed_at >= ${restEnds} AND ${which} ORDER BY seq LIMIT ${moveBatch}`;

/** No other session uses the table meanwhile. */
async function locked<T>({ run }: MysqlSession, n: Names, work: () => Promise<T>): Promise<T> {
  await run(`LOCK TABLES ${n.outbox} WRITE`);
  try {
    return await work();
  } finally {
    await run("UNLOCK TABLES");
  }
}

interface Dropped {
  readonly events: number;
  readonly moved: number;
}

/** May end at any point: events that have to stay are always in the outbox, and the next run goes on. Returns why it did not drop. */
async function dropOne(session: MysqlSession, n: Names, part: TablePartition, before: Date, emptied: boolean): Promise<Dropped | string> {
  const { run } = session;
  const from = `${n.outbox} PARTITION (${quoted(part.name)})`;
  const waits = `SELECT 1 FROM ${from} FORCE INDEX (state) WHERE ${stays(before)}`;
  const other = `SELECT 1 FROM ${from} FORCE INDEX (state) WHERE NOT ${stays(before)} LIMIT 1`;
  const [waiting] = await run(`SELECT COUNT(*) AS n FROM (${waits} LIMIT ${mostMoved + 1}) waiting`);
  if (numberOf(waiting!, "n") > mostMoved) return full;
  if (emptied && (await run(other)).length > 0) return filled;
  let moved = 0;
  for (let some = moveBatch; some === moveBatch;) {
    some = await moveSome(session, n, part.name, "state", stays(before));
    moved += some;
  }
  const [count] = part.rows < rowsCounted ? await run(`SELECT COUNT(*) AS n FROM ${from}`) : [];
  // Only under this lock is it certain that nothing has come since.
  return locked(session, n, async () => {
    if ((await run(`${waits} LIMIT 1`)).length > 0) return "somebody puts events into it";
    if (emptied && (await run(other)).length > 0) return filled;
    await keepNumbers(session, n);
    await run(`ALTER TABLE ${n.outbox} DROP PARTITION ${quoted(part.name)}`);
    return { events: count === undefined ? Math.max(0, part.rows - moved) : numberOf(count, "n"), moved };
  });
}

/**
 * Each partition keeps its own counter, and the table goes on from the highest of them. A partition that is dropped or recreated loses its
 * counter, and numbers would be given twice: so the counters of all partitions are set first.
 */
async function keepNumbers({ run }: MysqlSession, n: Names): Promise<void> {
  const [row] = await run(
    `SELECT GREATEST(COALESCE(AUTO_INCREMENT, 1), (SELECT COALESCE(MAX(seq), 0) + 1 FROM ${n.outbox})) AS next FROM information_schema.TABLES
     WHERE TABLE_SCHEMA = COALESCE(?, DATABASE()) AND TABLE_NAME = ?`,
    [n.schema, n.plain("outbox")],
  );
  await run(`ALTER TABLE ${n.outbox} AUTO_INCREMENT = ${textOf(row!, "next")}, ALGORITHM = INPLACE`);
}

const quoted = (name: string): string => `\`${name.replaceAll("`", "``")}\``;
