import type { ClaimRequest, Holding, OutboxStore, Window } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import type { NewId } from "../../core/ids.ts";
import type { Random } from "../../core/random.ts";
import { boundsOf, isUnread } from "../../core/within-bytes.ts";
import { claimNarrow, claimNormal, foundOf, narrowRows, type Found, type Scan, type ClaimTurn } from "./claim.ts";
import { claimOf, nothing, rowsPerStep } from "../kit/claim.ts";
import { createKnown } from "../kit/known.ts";
import type { Connection, MysqlSession } from "./connection.ts";
import { createFloors, type Floors, type LockedLane } from "./floors.ts";
import { releaseDestination, releaseStep, type Reopened, waitingFor } from "./holds.ts";
import { look, type Seen } from "./look.ts";
import type { Names } from "./names.ts";
import { createPace, type ReadPace } from "./pace.ts";
import { readPayload, withPayloads } from "./payloads.ts";
import { bigOf, least, numberOf, payloadSizeOf, readEvent, sizeOf, textOf, weightOf } from "./rows.ts";
import { settleWindow, type Published } from "./settle.ts";
import { list } from "./values.ts";
import { dropWindows, makeWindow, readWindows, windowsOf } from "./windows.ts";

export interface OutboxStoreParts {
  readonly connection: Connection;
  readonly names: Names;
  readonly clock: Clock;
  readonly random: Random;
  readonly newId: NewId;
  readonly onPublish: Published;
}

export function createOutboxStore({ connection, names, clock, random, newId, onPublish }: OutboxStoreParts): OutboxStore {
  const floors = createFloors(clock, random);
  const known = createKnown();
  const turns = createTurns(clock);
  const pace = createPace();

  return {
    async claim(holding, request) {
      if (holding.lanes.size === 0) return nothing;
      const stale = known.stale(holding.relay, request.open);
      try {
        const lanes = [...holding.lanes.keys()].sort((a, b) => a - b);
        const seen = await connection.session(({ run, link }) => {
          floors.meet(link);
          return look(run, names, lanes, floorOf(floors, holding));
        });
        const work = seen.ready || seen.due || seen.delayed || seen.releasing || seen.suspicious;
        if (!work && stale !== "all" && stale.length === 0 && floors.current(holding.lanes, seen.reopened) && !floors.moving(holding.lanes))
          return { ...nothing, destinations: seen.destinations };
        known.doubt(holding.relay); // until the server answers, it is unknown whether it made a window
        const id = newId();
        const window = await connection.transaction((session) =>
          claim({ session, names, holding, request, seen, stale, floors, id, pace, turn: turns() }),
        );
        known.keep(holding.relay, request.open, window.id);
        return window;
      } catch (error) {
        floors.reset();
        throw error;
      }
    },
    payload: ({ envelope: { seq }, unread = 0 }, signal) => readPayload(connection, names, { seq, size: unread }, signal),
    async settle(relay, window, outcomes) {
      const { over, ...report } = await connection.transaction((session) =>
        settleWindow(session, names, relay, window, outcomes, onPublish),
      );
      if (over) known.drop(relay, window);
      return report;
    },
    release: (holding, destination, limit) =>
      connection.transaction(async (session) => {
        const { lanes } = await lockLanes(session, names, holding);
        return releaseDestination(session, names, [...lanes.keys()], destination, limit);
      }),
    waitingFor: (after, limit) => waitingFor(connection.run, names, after, limit),
  };
}

/** The look for lanes without a row may walk over the whole backlog of others: at most a twentieth of the time goes into it. */
function createTurns(clock: Clock): () => ClaimTurn {
  let number = 0;
  let next = -Infinity;
  return () => ({
    number: number++,
    async probe(work) {
      const began = clock.monotonic();
      if (began < next) return;
      await work();
      next = clock.monotonic() + 20 * (clock.monotonic() - began);
    },
  });
}

interface Claiming {
  readonly session: MysqlSession;
  readonly names: Names;
  readonly holding: Holding;
  readonly request: ClaimRequest;
  readonly seen: Seen;
  readonly stale: readonly string[] | "all";
  readonly floors: Floors;
  readonly id: string;
  readonly pace: ReadPace;
  readonly turn: ClaimTurn;
}

const none = (more: boolean): Window => ({ ...nothing, more });

async function claim({ session, names: n, holding, request, seen, stale, floors, id, pace, turn }: Claiming): Promise<Window> {
  const owned = await lockLanes(session, n, holding);
  const all = [...owned.lanes.keys()];
  await forgetWindows(session, n, holding.relay, request.open, stale);
  if (all.length === 0) return none(false);
  floors.enter({ link: session.link, ...owned });
  const reopen = (rows: readonly Reopened[]): void => {
    for (const { lane, seq } of rows) floors.lower(lane, seq);
  };
  const freed = seen.delayed ? await freeDelayed(session, n, all) : [];
  reopen(freed);
  const crowded = freed.length === rowsPerStep ? await lanesWithMoreDue(session, n, all) : new Set<number>();
  const lanes = all.filter((lane) => !crowded.has(lane));
  if (lanes.length === 0) return none(true);
  if (seen.suspicious) await forgetSuspects(session, n, lanes);
  const releasing = seen.releasing ? await releaseStep(session, n, lanes) : { remain: false, rows: [] };
  reopen(releasing.rows);
  await floors.look(session.run, n, id);

  const open = await openParts(session, n, request.open);
  const bounds = boundsOf(request);
  const own = {
    session,
    names: n,
    lanes,
    limit: request.limit,
    ...bounds,
    pace,
    suspicious: seen.suspicious,
    floorOf: floorOf(floors, holding),
  };
  const scan: Scan = { ...own, open: open.parts };
  const caught = request.narrow ? await claimNarrow(scan) : await claimNormal(scan, turn, seen.due);
  if (caught.found.length > 0) {
    const parts = byLane(caught.found);
    await makeWindow(session, n, { id, relay: holding.relay, width: caught.found.length + open.events, parts });
    for (const [lane, seqs] of parts) open.parts.set(lane, [...(open.parts.get(lane) ?? []), ...seqs]);
  }
  for (const [lane, lowest] of caught.lowest) {
    const unsettled = [...(open.parts.get(lane) ?? []), ...(lowest === null ? [] : [lowest])];
    floors.raise(lane, unsettled.length === 0 ? null : least(...unsettled));
  }
  const rows = caught.found.map(({ row }) => row);
  const whole = await withPayloads(session.run, n, rows, (row) => !isUnread(weightOf(row), bounds));
  return {
    id: rows.length === 0 ? null : id,
    claims: whole.map((row) => {
      const unread = isUnread(weightOf(row), bounds);
      return claimOf(readEvent(row, unread), holding, foundOf(row), unread ? payloadSizeOf(row) : null);
    }),
    suspects: (await narrowRows({ ...scan, open: open.parts })).length,
    destinations: seen.destinations,
    more: caught.cut || releasing.remain || crowded.size > 0,
  };
}

const floorOf =
  (floors: Floors, { lanes }: Holding) =>
  (lane: number): bigint =>
    floors.of(lane, lanes.get(lane)!);

/** Locks the lanes that this relay still owns under the epoch it knows. No other session acts on them until the transaction ends. */
async function lockLanes(
  { run }: MysqlSession,
  n: Names,
  holding: Holding,
): Promise<{ readonly lanes: ReadonlyMap<number, LockedLane>; readonly server: string }> {
  const rows = await run(
    `SELECT lane, epoch, reopened, CONCAT(@@hostname, ':', @@port, ':', @@server_id) AS server FROM ${n.lanes} FORCE INDEX (PRIMARY)
     WHERE lane IN (${list([...holding.lanes.keys()].sort((a, b) => a - b))}) AND owner = ? ORDER BY lane FOR UPDATE`,
    [holding.relay],
  );
  const lanes = rows
    .map((row) => [numberOf(row, "lane"), { epoch: bigOf(row, "epoch"), reopened: bigOf(row, "reopened") }] as const)
    .filter(([lane, { epoch }]) => holding.lanes.get(lane) === epoch);
  return { lanes: new Map(lanes), server: rows[0] === undefined ? "" : textOf(rows[0], "server") };
}

async function forgetWindows(
  session: MysqlSession,
  n: Names,
  relay: string,
  open: readonly string[],
  stale: readonly string[] | "all",
): Promise<void> {
  const forgotten = stale === "all" ? (await windowsOf(session, n, [relay])).filter((window) => !open.includes(window)) : stale;
  await dropWindows(session, n, forgotten);
}

async function openParts(
  session: MysqlSession,
  n: Names,
  ids: readonly string[],
): Promise<{ readonly parts: Map<number, bigint[]>; readonly events: number }> {
  const parts = new Map<number, bigint[]>();
  for (const window of await readWindows(session, n, ids))
    for (const [lane, seqs] of window.parts) parts.set(lane, [...(parts.get(lane) ?? []), ...seqs]);
  return { parts, events: sizeOf(parts) };
}

/** Events that have become available join their lane, all of them before anything is claimed. */
async function freeDelayed(session: MysqlSession, n: Names, lanes: readonly number[]): Promise<readonly Reopened[]> {
  const rows = await session.run(
    `SELECT lane, seq FROM ${n.outbox} FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) AND status = 'PENDING' AND lane IN (${list(lanes)})
     ORDER BY due_at LIMIT ${rowsPerStep}`,
  );
  const freed = rows.map((row) => ({ lane: numberOf(row, "lane"), seq: bigOf(row, "seq") }));
  if (freed.length > 0)
    await session.change(
      `UPDATE ${n.outbox} FORCE INDEX (PRIMARY) SET next_attempt_at = UTC_TIMESTAMP(6) WHERE seq IN (${list(freed.map(({ seq }) => seq))}) AND status = 'PENDING'`,
    );
  return freed;
}

/** Nothing is claimed from these now: a later event would go before one that is due. */
async function lanesWithMoreDue(session: MysqlSession, n: Names, lanes: readonly number[]): Promise<ReadonlySet<number>> {
  const rows = await session.run(
    `SELECT DISTINCT lane FROM ${n.outbox} FORCE INDEX (due) WHERE due_at <= UTC_TIMESTAMP(6) AND status = 'PENDING' AND lane IN (${list(lanes)})`,
  );
  return new Set(rows.map((row) => numberOf(row, "lane")));
}

/** A suspect that was deleted, or is final, must not keep its aggregate in narrow windows. */
async function forgetSuspects(session: MysqlSession, n: Names, lanes: readonly number[]): Promise<void> {
  const rows = await session.run(
    `SELECT s.seq FROM ${n.suspects} s LEFT JOIN ${n.outbox} o ON o.seq = s.seq AND o.status IN ('PENDING', 'FAILED', 'BLOCKED')
     WHERE s.lane IN (${list(lanes)}) AND o.seq IS NULL`,
  );
  if (rows.length > 0)
    await session.change(
      `DELETE s FROM ${n.suspects} s FORCE INDEX (PRIMARY) WHERE s.seq IN (${list(rows.map((row) => bigOf(row, "seq")))})`,
    );
}

function byLane(found: readonly Found[]): Map<number, bigint[]> {
  const parts = new Map<number, bigint[]>();
  for (const { lane, seq } of found) parts.set(lane, [...(parts.get(lane) ?? []), seq]);
  return parts;
}
