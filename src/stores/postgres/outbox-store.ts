import type { ClaimRequest, Holding, Outcome, OutboxStore, Window } from "../../contracts/outbox-store.ts";
import type { NewId } from "../../core/ids.ts";
import { boundsOf } from "../../core/within-bytes.ts";
import { claimAtOnce } from "./claim-at-once.ts";
import { type Caught, claimNarrow, claimNormal, countNarrow, type Scan } from "./claim.ts";
import { claimOf, nothing, rowsPerStep } from "../kit/claim.ts";
import { createKnown } from "../kit/known.ts";
import type { Connection, Run } from "./connection.ts";
import { type Floors, highestOf, least, type Sighting } from "./floors.ts";
import { releaseDestination, releaseStep, type Reopened, waitingFor } from "./holds.ts";
import { literal, type Names } from "./names.ts";
import { available, now, type Reach, ready } from "./pending.ts";
import { readPayload } from "./payload.ts";
import { list, readEnvelope } from "./rows.ts";
import { createShares } from "./shares.ts";
import { type Published, settlePublished, settleWindow } from "./settle.ts";

interface OutboxStoreParts {
  readonly connection: Connection;
  readonly names: Names;
  readonly newId: NewId;
  readonly onPublish: Published;
  readonly floors: Floors;
}

/** Distinguishes servers, and restarts of one server. */
const serverStart = "extract(epoch FROM pg_postmaster_start_time())";
/** The highest number that was drawn. A query of the sequence would say the same, and cost ten times as much. */
const drawnOf = (n: Names): string => `coalesce(pg_sequence_last_value(${literal(n.seq)}::regclass), 0)`;

export function createOutboxStore({ connection, names, newId, onPublish, floors }: OutboxStoreParts): OutboxStore {
  const known = createKnown();
  const shares = createShares();
  /** Relays whose last claim left something. */
  const behind = new Set<string>();

  /** Null when the claim needs a closer look. */
  const atOnce = async (holding: Holding, request: ClaimRequest, stale: readonly string[]): Promise<Window | null> => {
    const expected = request.narrow || request.detour === true || request.limit < 1 ? null : floors.expect(holding);
    if (expected === null) return null;
    const { relay } = holding;
    known.doubt(relay); // until the server answers, it is unknown whether it made a window
    const id = newId();
    const wants = shares.of([...holding.lanes.keys()], request.limit);
    const done = await claimAtOnce(connection, { names, holding, request, expected, stale, wants, behind: behind.has(relay), id }).catch(
      (error: unknown) => {
        floors.reset();
        throw error;
      },
    );
    if (done === null) {
      known.keep(relay, request.open, null);
      return null;
    }
    const { claims, cut, sighting } = done;
    floors.learn(holding, sighting);
    if (claims.length < request.limit) shares.learn(claims, wants);
    known.keep(relay, request.open, claims.length === 0 ? null : id);
    return { ...nothing, id: claims.length === 0 ? null : id, claims, more: cut };
  };

  const claimAll = async (holding: Holding, request: ClaimRequest): Promise<Window> => {
    const stale = known.stale(holding.relay, request.open);
    if (stale === "all" || stale.length > 0) floors.reset(); // their events come back
    const turn = floors.turn();
    const window = stale === "all" ? null : await atOnce(holding, request, stale);
    if (window !== null) return window;
    const seen = await look(connection.run, names, holding, request, floors);
    if (!seen.work && stale !== "all" && stale.length === 0)
      return { ...nothing, suspects: seen.suspects, destinations: seen.destinations };
    known.doubt(holding.relay); // until the server answers, it is unknown whether it made a window
    try {
      const id = newId();
      const done = await connection.transaction((run) => claim({ run, names, holding, request, seen, stale, floors, turn, id }));
      floors.learn(holding, done.sighting);
      known.keep(holding.relay, request.open, done.window.id);
      return done.window;
    } catch (error) {
      floors.reset();
      throw error;
    }
  };

  return {
    async claim(holding, request) {
      if (holding.lanes.size === 0) return nothing;
      const window = await claimAll(holding, request);
      if (window.more) behind.add(holding.relay);
      else behind.delete(holding.relay);
      return window;
    },
    payload: ({ envelope: { seq } }, signal, arrived) => readPayload(connection, names, seq, { signal, arrived }),
    async settle(relay, window, outcomes) {
      const which = { relay, window };
      /** Events that may be pending again, even if the settle fails: the server may have done it. */
      let back: readonly Outcome[] = outcomes.filter(({ as }) => as !== "published");
      try {
        const { ended, ...report } =
          (back.length === 0 ? await settlePublished(connection, names, which, outcomes, onPublish) : null) ??
          (await connection.transaction((run) => settleWindow(run, names, which, outcomes, onPublish)));
        if (ended) known.drop(relay, window);
        if (report.settled < outcomes.length) back = outcomes;
        return report;
      } finally {
        if (back.length > 0) floors.reopen(relay, belowEach(back));
      }
    },
    release: (holding, destination, limit) =>
      connection.transaction(async (run) => {
        const owned = await lockLanes(run, names, holding);
        return releaseDestination(run, names, list(owned.lanes.keys()), destination, limit);
      }),
    waitingFor: (after, limit) => waitingFor(connection.run, names, after, limit),
  };
}

/** By lane, the number below the lowest event. */
const belowEach = (outcomes: readonly Outcome[]): ReadonlyMap<number, bigint> =>
  outcomes.reduce((lanes, { claim: { lane, envelope } }) => {
    const below = envelope.seq - 1n;
    return lanes.set(lane, least(below, lanes.get(lane) ?? below));
  }, new Map<number, bigint>());

interface Seen {
  readonly work: boolean;
  readonly due: boolean;
  readonly delayed: boolean;
  readonly releasing: boolean;
  readonly suspicious: boolean;
  readonly suspects: number;
  readonly destinations: readonly string[];
  readonly server: string;
  readonly drawn: bigint;
  readonly reach: Reach;
  readonly floors: ReadonlyMap<number, bigint>;
}

/** Whether a claim would find anything. It takes no lock, so that an idle relay does not disturb other sessions. */
async function look(run: Run, n: Names, holding: Holding, request: ClaimRequest, floors: Floors): Promise<Seen> {
  const lanes = [...holding.lanes.keys()];
  const anchors = floors.anchors();
  const [facts] = await run(
    `SELECT ${drawnOf(n)} AS drawn, ${serverStart} AS server, (SELECT floor FROM ${n.tail}) AS tail,
       EXISTS (SELECT 1 FROM ${n.outbox} WHERE seq = ANY ($2::bigint[]) AND id <> ALL ($3::text[])) AS displaced,
       EXISTS (SELECT 1 FROM ${n.outbox} WHERE status = 'FAILED' AND next_attempt_at <= ${now} AND lane = ANY ($1::smallint[])) AS due,
       EXISTS (SELECT 1 FROM ${n.outbox} WHERE ${available} AND lane = ANY ($1::smallint[])) AS delayed,
       (SELECT lane FROM ${n.holds} WHERE free_to IS NOT NULL AND lane = ANY ($1::smallint[]) ORDER BY lane LIMIT 1) IS NOT NULL AS releasing, -- an EXISTS may read them all
       (SELECT json_agg(json_build_array(lane, reopened::text)) FROM ${n.lanes} WHERE lane = ANY ($1::smallint[])) AS redrives,
       EXISTS (SELECT 1 FROM ${n.suspects} WHERE lane = ANY ($1::smallint[])) AS suspicious,
       (SELECT json_agg(DISTINCT destination ORDER BY destination) FROM ${n.destinations} WHERE lane = ANY ($1::smallint[])) AS destinations`,
    [list(lanes), list(anchors.map(({ seq }) => seq)), anchors.map(({ id }) => id)],
  );
  const yes = (name: string): boolean => facts?.[name] === "t";
  const drawn = BigInt(facts!["drawn"]!);
  const redrives = JSON.parse(facts!["redrives"] ?? "[]") as [number, string][];
  // Other relays claimed other events: as after a redrive, each begins at the start again.
  if (yes("displaced")) await run(`UPDATE ${n.lanes} SET reopened = reopened + 1`);
  const detour = request.detour === true;
  const reach = { tail: detour ? 0n : BigInt(facts!["tail"] ?? 0), detour };
  const from = floors.of(holding, {
    reach,
    displaced: yes("displaced"),
    server: facts!["server"]!,
    drawn,
    redrives: new Map(redrives.map(([lane, count]) => [lane, BigInt(count)])),
  });
  const seen = {
    due: yes("due"),
    delayed: yes("delayed"),
    releasing: yes("releasing"),
    suspicious: yes("suspicious"),
    destinations: JSON.parse(facts!["destinations"] ?? "[]") as string[],
    server: facts!["server"]!,
    drawn,
    reach,
    floors: from,
  };
  const scan = scanOf(run, n, lanes, request, seen);
  const suspects = seen.suspicious ? await countNarrow(scan) : 0;
  const work = seen.due || seen.delayed || seen.releasing || (await anyReady(scan, from));
  return { ...seen, suspects, work };
}

async function anyReady({ run, names: n, lanes, open, reach }: Scan, floors: ReadonlyMap<number, bigint>): Promise<boolean> {
  const found = await run(
    `SELECT 1 AS found FROM unnest($1::smallint[], $2::bigint[]) AS l (lane, floor)
     CROSS JOIN LATERAL (
       ${ready(n, reach, "l.floor", `o.seq NOT IN (SELECT unnest(w.seqs) FROM ${n.windows} w WHERE w."window" = ANY ($3::text[]))`, "1")}
     ) o LIMIT 1`,
    [list(lanes), list(lanes.map((lane) => floors.get(lane) ?? 0n)), open],
  );
  return found.length > 0;
}

interface Claiming {
  readonly run: Run;
  readonly names: Names;
  readonly holding: Holding;
  readonly request: ClaimRequest;
  readonly seen: Seen;
  readonly stale: readonly string[] | "all";
  readonly floors: Floors;
  readonly turn: number;
  readonly id: string;
}

interface Claimed {
  readonly window: Window;
  readonly sighting: Sighting;
}

async function claim({ run, names: n, holding, request, seen, stale, floors, turn, id }: Claiming): Promise<Claimed> {
  const owned = await lockLanes(run, n, holding);
  const lanes = [...owned.lanes.keys()];
  if (stale === "all" || stale.length > 0) {
    await run(
      `DELETE FROM ${n.windows} WHERE relay = $1 AND ${stale === "all" ? 'NOT "window" = ANY ($2::text[])' : '"window" = ANY ($2::text[])'}`,
      [holding.relay, stale === "all" ? request.open : stale],
    );
  }
  const elsewhere = owned.server !== seen.server; // a failover since the look: floors that the other server proved do not count
  const reopened = new Map(
    lanes.filter((lane) => elsewhere || floors.stale(holding, lane, owned.lanes.get(lane)!)).map((lane) => [lane, 0n]),
  );
  const reopen = (rows: readonly Reopened[]): void => {
    for (const { lane, first } of rows) reopened.set(lane, least(first - 1n, reopened.get(lane) ?? first));
  };
  const freed = seen.delayed ? await freeDelayed(run, n, lanes) : { rows: 0, lanes: [] };
  reopen(freed.lanes);
  const crowded = freed.rows === rowsPerStep ? await lanesWithMoreDue(run, n, lanes) : new Set<number>();
  if (seen.suspicious) await forgetSuspects(run, n);
  const releasing = seen.releasing ? await releaseStep(run, n, list(lanes)) : { remain: false, lanes: [] };
  reopen(releasing.lanes);

  const scanned = lanes.filter((lane) => !crowded.has(lane));
  const scan = scanOf(run, n, scanned, request, seen);
  const from = new Map(scanned.map((lane) => [lane, least(seen.floors.get(lane) ?? 0n, reopened.get(lane) ?? seen.drawn)]));
  const caught = request.narrow ? await claimNarrow(scan) : await claimNormal(scan, from, seen.due);
  if (caught.found.length > 0) await recordWindow(run, n, id, holding, request, caught);
  const claims = caught.found.map((found) => claimOf(readEnvelope(found.row), holding, found, found.bare));
  return {
    window: {
      id: caught.found.length === 0 ? null : id,
      claims,
      suspects: seen.suspicious ? await countNarrow({ ...scan, open: [...request.open, id] }) : 0,
      destinations: seen.destinations,
      more: caught.cut || releasing.remain || crowded.size > 0,
    },
    sighting: {
      turn,
      reopened,
      redrives: owned.lanes,
      anchor: highestOf(claims),
      proof:
        request.narrow || elsewhere || scanned.length < lanes.length || lanes.length === 0
          ? null
          : { drawn: seen.drawn, xid: owned.xid, oldest: caught.oldest, upTo: caught.upTo },
    },
  };
}

const scanOf = (
  run: Run,
  names: Names,
  lanes: readonly number[],
  request: ClaimRequest,
  { suspicious, reach }: Pick<Seen, "suspicious" | "reach">,
): Scan => {
  const { bytes, largest } = boundsOf(request);
  return {
    run,
    names,
    lanes,
    limit: request.limit,
    bytes: Math.min(bytes, Number.MAX_SAFE_INTEGER),
    largest,
    open: request.open,
    suspicious,
    reach,
  };
};

interface Locked {
  /** How often an operator has put rows back into each. */
  readonly lanes: ReadonlyMap<number, bigint>;
  readonly xid: bigint;
  readonly server: string | null;
}

/** Locks the lanes that this relay still owns under the epoch it knows. No other session acts on them until the transaction ends. */
async function lockLanes(run: Run, n: Names, holding: Holding): Promise<Locked> {
  const rows = await run(
    `SELECT l.*, pg_current_xact_id() AS xid, ${serverStart} AS server FROM (
       SELECT lane, epoch, reopened FROM ${n.lanes} WHERE owner = $1 AND lane = ANY ($2::smallint[]) ORDER BY lane FOR UPDATE) l`,
    [holding.relay, list(holding.lanes.keys())],
  );
  const mine = rows.filter((row) => holding.lanes.get(Number(row["lane"])) === BigInt(row["epoch"]!));
  return {
    lanes: new Map(mine.map((row) => [Number(row["lane"]), BigInt(row["reopened"]!)])),
    xid: BigInt(rows[0]?.["xid"] ?? 0),
    server: rows[0]?.["server"] ?? null,
  };
}

/** Delayed events that have become available join their lane. All of a lane's join before any event of the lane is claimed. */
async function freeDelayed(run: Run, n: Names, lanes: readonly number[]): Promise<{ rows: number; lanes: readonly Reopened[] }> {
  const freed = await run(
    `WITH freed AS (
       UPDATE ${n.outbox} SET next_attempt_at = available_at WHERE seq IN (
         SELECT seq FROM ${n.outbox} WHERE ${available} AND lane = ANY ($1::smallint[])
         ORDER BY available_at LIMIT ${rowsPerStep})
       RETURNING lane, seq)
     SELECT lane, min(seq) AS first, count(*) AS n FROM freed GROUP BY lane`,
    [list(lanes)],
  );
  return {
    rows: freed.reduce((sum, row) => sum + Number(row["n"]), 0),
    lanes: freed.map((row) => ({ lane: Number(row["lane"]), first: BigInt(row["first"]!) })),
  };
}

/** Nothing is claimed from these lanes now: a later event would overtake one that is due. */
async function lanesWithMoreDue(run: Run, n: Names, lanes: readonly number[]): Promise<ReadonlySet<number>> {
  const rows = await run(`SELECT DISTINCT lane FROM ${n.outbox} WHERE ${available} AND lane = ANY ($1::smallint[])`, [list(lanes)]);
  return new Set(rows.map((row) => Number(row["lane"])));
}

/** An event that was deleted, or that is final, must not keep its aggregate in narrow windows. */
async function forgetSuspects(run: Run, n: Names): Promise<void> {
  await run(
    `DELETE FROM ${n.suspects} s WHERE NOT EXISTS (SELECT 1 FROM ${n.outbox} o WHERE o.seq = s.seq AND o.status IN ('PENDING', 'FAILED', 'BLOCKED'))`,
  );
}

async function recordWindow(run: Run, n: Names, id: string, holding: Holding, request: ClaimRequest, { found }: Caught): Promise<void> {
  await run(
    `INSERT INTO ${n.windows} ("window", relay, width, seqs)
     SELECT $1, $2, cardinality($3::bigint[]) + coalesce(sum(cardinality(seqs)), 0), $3::bigint[]
     FROM ${n.windows} WHERE "window" = ANY ($4::text[]) AND relay = $2`,
    [id, holding.relay, list(found.map(({ seq }) => seq)), request.open],
  );
}
