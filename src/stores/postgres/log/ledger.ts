import type { LoggedTransaction } from "../../../contracts/log-tailer.ts";
import type { Holding, Outcome } from "../../../contracts/outbox-store.ts";
import type { Checkpoint, CheckpointReport, Entrance, Handed, TailLedger, Tailing } from "../../../contracts/tail-ledger.ts";
import type { Clock } from "../../../core/clock.ts";
import { aggregateKey } from "../../../core/event.ts";
import { LANES } from "../../../core/lane.ts";
import type { Connection, Run } from "../connection.ts";
import type { Floors } from "../floors.ts";
import { literal, type Names } from "../names.ts";
import { logged } from "../pending.ts";
import { addedWithin, bigints, list, spanOf } from "../rows.ts";
import { settleFailures, type Published } from "../settle.ts";
import { detoursOf, inTable, mostDetours } from "./detours.ts";
import { lsnOf } from "./lsn.ts";
import { createProofs } from "./proofs.ts";
import { runningOf } from "./running.ts";

interface LedgerParts {
  readonly connection: Connection;
  readonly names: Names;
  readonly clock: Clock;
  readonly floors: Floors;
  readonly onPublish: Published;
}

/** An event, and the transaction that inserted it. */
interface Inserted {
  readonly seq: bigint;
  readonly xid: string;
}

/** Between two moments that the table keeps of the floor: the view's `published_at` is this exact. */
const markMs = 5_000;

/** A relay that has just begun knows more after two checkpoints. Beyond that, a transaction stays open. */
const mostBlind = 4;
const drawnOf = (n: Names): string => `coalesce(pg_sequence_last_value(${literal(n.seq)}::regclass), 0)`;
/** A checkpoint that is confirmed must not be lost: the server forgets its log up to there. */
const durable = "SELECT set_config('synchronous_commit', 'on', true) WHERE current_setting('synchronous_commit') = 'off'";

export function createLedger({ connection, names: n, clock, floors, onPublish }: LedgerParts): TailLedger {
  const proofs = createProofs();
  let markedAt = -Infinity;
  /** How many times in a row the floor could not rise because too little is known of open transactions. */
  let blind = 0;

  /** Before the row is changed: the floor as it was, and when it was told. */
  const mark = (): readonly string[] => {
    if (clock.monotonic() - markedAt < markMs) return [];
    markedAt = clock.monotonic();
    return [`INSERT INTO ${n.tail_marks} (floor, at) SELECT floor, at FROM ${n.tail} WHERE floor > 0 ON CONFLICT DO NOTHING`];
  };
  const mine = ({ relay, epoch }: Tailing): string => `owner = ${literal(relay)} AND epoch = ${epoch}`;

  /** The last statement of a checkpoint. What it answers is read by one snapshot, after the transaction has its id. */
  const keep = (tailing: Tailing, { position, leaves }: Checkpoint, found = 0n): string => {
    const floor = proofs.reached(lsnOf(position));
    const moved = `greatest(floor, ${floor}, ${found})`;
    return `UPDATE ${n.tail} SET floor = ${moved}, at = CASE WHEN ${moved} > floor THEN clock_timestamp() ELSE at END,
      position = ${leaves ? literal(position) : "NULL"}, owner = ${leaves ? "NULL" : "owner"} WHERE ${mine(tailing)}
      RETURNING floor, pg_current_xact_id(), pg_snapshot_xmin(pg_current_snapshot()), pg_current_wal_insert_lsn()`;
  };
  const lost: CheckpointReport = { kept: false, floor: 0n, told: false, unseen: new Set() };
  const report = (drawn: string, row: readonly (string | null)[] | undefined, told: boolean): CheckpointReport => {
    if (row === undefined) return lost;
    const [floor, xid, oldest, end] = row as readonly string[];
    proofs.saw({ drawn: BigInt(drawn), xid: BigInt(xid!), oldest: BigInt(oldest!), end: lsnOf(end!) });
    return { kept: true, floor: BigInt(floor!), told, unseen: new Set() };
  };

  const whole = async (tailing: Tailing, what: Checkpoint): Promise<CheckpointReport> => {
    let below: ReadonlyMap<number, bigint> = new Map();
    const reopen = floors.reopening(tailing.relay);
    try {
      return await written(tailing, what, (lanes) => (below = lanes));
    } finally {
      reopen(below); // even if it seems to have failed
    }
  };
  const written = (tailing: Tailing, what: Checkpoint, reopens: (below: ReadonlyMap<number, bigint>) => void): Promise<CheckpointReport> =>
    connection.transaction(async (run) => {
      const [numbers] = await run(`SELECT ${drawnOf(n)} AS drawn`);
      const [held] = await run(`SELECT 1 AS held FROM ${n.tail} WHERE ${mine(tailing)} FOR UPDATE`);
      if (held === undefined) return lost;
      const unseen = behind(what.handed, await unseenOf(run, what.handed.map(idOf)));
      const seen = what.handed.filter(({ claim }) => !unseen.has(claim.envelope.seq));
      reopens(
        await handOver(
          run,
          seen.filter(({ outcome }) => outcome === null),
        ),
      );
      await fail(
        run,
        seen.flatMap(({ outcome }) => outcome ?? []),
      );
      const found = what.published.length === 0 ? 0n : await publishedUpTo(run, what.published);
      const above = what.published.filter(({ seq }) => seq > found);
      blind = found > 0n || !what.crowded ? 0 : blind + 1;
      const told =
        what.tell || onPublish === "delete" || (what.crowded && blind % mostBlind === 0 && above.length > what.published.length / 2);
      const untold = told ? await tellPublished(run, onPublish === "delete" ? what.published : above) : [];
      for (const statement of mark()) await run(statement);
      const rows = await run(keep(tailing, what, found));
      return { ...report(numbers!["drawn"]!, rows[0] && Object.values(rows[0]), told), unseen: new Set([...unseen, ...untold]) };
    });
  const idOf = ({ claim, xid }: Handed): Inserted => ({ seq: claim.envelope.seq, xid });

  /** Rows that cannot be seen although the log has them. A row that is gone, when its transaction has ended, was deleted. */
  const unseenOf = async (run: Run, given: readonly Inserted[]): Promise<ReadonlySet<bigint>> => {
    const missing = await missingOf(run, given);
    if (missing.length === 0) return new Set();
    const running = await runningOf(
      run,
      missing.map(({ xid }) => xid),
    );
    const open = missing.filter(({ xid }) => running.has(xid));
    // Others may have ended since the first look.
    const ended = missing.filter(({ xid }) => !running.has(xid));
    const late = new Set((await missingOf(run, ended)).map(({ seq }) => seq));
    return new Set([...open, ...ended.filter(({ seq }) => !late.has(seq))].map(({ seq }) => seq));
  };
  const missingOf = async (run: Run, given: readonly Inserted[]): Promise<readonly Inserted[]> => {
    if (given.length === 0) return [];
    const seen = await seqsOf(run, `SELECT seq FROM ${n.outbox} WHERE seq = ANY ($1::bigint[])`, given);
    return given.filter(({ seq }) => !seen.has(seq));
  };

  /** By lane, the number below the first of them. */
  const handOver = async (run: Run, handed: readonly Handed[]): Promise<ReadonlyMap<number, bigint>> => {
    if (handed.length === 0) return new Map();
    const rows = await run(
      `WITH handed AS (UPDATE ${n.outbox} SET next_attempt_at = clock_timestamp() WHERE seq = ANY ($1::bigint[]) AND ${logged} RETURNING lane, seq)
       SELECT lane, min(seq) AS first FROM handed GROUP BY lane`,
      [list(handed.map(({ claim }) => claim.envelope.seq))],
    );
    return new Map(rows.map((row) => [Number(row["lane"]), BigInt(row["first"]!) - 1n]));
  };

  const fail = async (run: Run, outcomes: readonly Outcome[]): Promise<void> => {
    if (outcomes.length === 0) return;
    const rows = await run(`SELECT seq, lane FROM ${n.outbox} WHERE seq = ANY ($1::bigint[])`, [
      list(outcomes.map(({ claim }) => claim.envelope.seq)),
    ]);
    const lanes = new Map(rows.map((row) => [BigInt(row["seq"]!), Number(row["lane"])]));
    // As settles of a window do: no claim of these lanes is under way.
    await run(`SELECT 1 FROM ${n.lanes} WHERE lane = ANY ($1::smallint[]) ORDER BY lane FOR UPDATE`, [list(new Set(lanes.values()))]);
    const placed = outcomes.map((outcome) => {
      const { claim } = outcome;
      return { ...outcome, claim: { ...claim, lane: lanes.get(claim.envelope.seq) ?? claim.lane } };
    });
    await settleFailures(run, n, placed);
  };

  /**
   * Up to which number all of the log's events are among these, or settled before. While a backlog is read, the end of the log is far behind
   * the position, and only the table tells which of its events are still to come.
   */
  const publishedUpTo = async (run: Run, published: Checkpoint["published"]): Promise<bigint> => {
    const decided = proofs.decided();
    if (decided === 0n) return 0n;
    await run("SET LOCAL enable_seqscan = off");
    const [row] = await run(
      `SELECT o.seq FROM ${n.outbox} o WHERE o.seq > (SELECT floor FROM ${n.tail}) AND o.seq <= $2::bigint AND ${logged}
       AND o.seq NOT IN (SELECT unnest($1::bigint[])) ORDER BY o.seq LIMIT 1`,
      [list(published.map(({ seq }) => seq)), String(decided)],
    );
    return row === undefined ? decided : BigInt(row["seq"]!) - 1n;
  };

  /** Answers those whose rows could not be seen. */
  const tellPublished = async (run: Run, published: Checkpoint["published"]): Promise<readonly bigint[]> => {
    if (published.length === 0) return [];
    const [from, to] = spanOf(published.map(({ createdAt }) => createdAt.getTime()));
    const which = `seq = ANY ($1::bigint[]) AND ${logged} AND ${addedWithin(from, to)}`;
    const told = await seqsOf(
      run,
      onPublish === "delete"
        ? `DELETE FROM ${n.outbox} WHERE ${which} RETURNING seq`
        : `UPDATE ${n.outbox} SET status = 'PUBLISHED', published_at = clock_timestamp() WHERE ${which} RETURNING seq`,
      published,
    );
    const missing = published.filter(({ seq }) => !told.has(seq));
    if (missing.length === 0) return [];
    const running = await runningOf(
      run,
      missing.map(({ xid }) => xid),
    );
    // Others may have ended since. Of the rest, the row was deleted, or is the table's.
    const late = await seqsOf(run, `SELECT seq FROM ${n.outbox} WHERE ${which}`, missing);
    return missing.filter(({ seq, xid }) => running.has(xid) || late.has(seq)).map(({ seq }) => seq);
  };
  const seqsOf = async (run: Run, statement: string, which: readonly { readonly seq: bigint }[]): Promise<ReadonlySet<bigint>> => {
    const [row] = await run(`WITH r AS (${statement}) SELECT array_agg(seq) AS seqs FROM r`, [list(which.map(({ seq }) => seq))]);
    return new Set(bigints(row!["seqs"]));
  };

  return {
    async entrance(place) {
      if (place !== undefined) {
        // Whoever drew one of these numbers has an older transaction.
        const [drawn, xid] = await connection.batch(`SELECT ${drawnOf(n)}`, "SELECT pg_current_xact_id()");
        return { place, proof: `${drawn![0]![0]!} ${xid![0]![0]!}` };
      }
      const [row] = await connection.run(`SELECT system, position FROM ${n.tail} WHERE owner IS NULL AND position IS NOT NULL`);
      return row === undefined ? null : { place: { system: row["system"]!, position: row["position"]! }, proof: null };
    },
    isSettled: (entrance) => isSettled(connection.run, n, entrance),
    enter: (holding, entrance) =>
      connection.transaction(async (run) => {
        const [before] = await run(`SELECT owner, position, system FROM ${n.tail} FOR UPDATE`);
        if (before === undefined || !(await ownsAll(run, n, holding))) return null;
        const { place, proof } = entrance;
        if (proof === null && (before["position"] !== place.position || before["system"] !== place.system)) return null;
        if (!(await isSettled(run, n, entrance))) return null;
        const detours = await inTable(run, n);
        if (detours.length > mostDetours) return null;
        const floor = proof === null ? 0n : readProof(proof).drawn;
        for (const statement of mark()) await run(statement);
        const moved = `greatest(floor, ${floor})`;
        const [row] = await run(
          `UPDATE ${n.tail} SET owner = $1, epoch = epoch + 1, floor = ${moved}, system = $2, position = NULL,
             at = CASE WHEN ${moved} > floor THEN clock_timestamp() ELSE at END
           RETURNING epoch, floor, pg_current_wal_insert_lsn() AS doubt`,
          [holding.relay, place.system],
        );
        proofs.reset();
        return {
          relay: holding.relay,
          epoch: BigInt(row!["epoch"]!),
          from: place,
          floor: BigInt(row!["floor"]!),
          doubt: row!["doubt"]!,
          detours,
        };
      }),
    async unsettled({ floor, doubt }, transactions) {
      const isDoubtful = ({ commit }: LoggedTransaction): boolean => lsnOf(commit) <= lsnOf(doubt);
      if (!transactions.some(isDoubtful)) return null;
      const insertedBy = (of: readonly LoggedTransaction[]): readonly Inserted[] =>
        of.flatMap(({ xid, events }) => events.map(({ envelope }) => ({ seq: envelope.seq, xid })));
      const sure = insertedBy(transactions.filter((each) => !isDoubtful(each))).map(({ seq }) => seq);
      const open = insertedBy(transactions.filter(isDoubtful)).filter(({ seq }) => seq > floor);
      const { run } = connection;
      const rows = await run(
        `SELECT array_agg(seq) FILTER (WHERE ${logged}) AS still, array_agg(seq) AS seen FROM ${n.outbox} WHERE seq = ANY ($1::bigint[])`,
        [list(open.map(({ seq }) => seq))],
      );
      const [still, seen] = [bigints(rows[0]!["still"]), new Set(bigints(rows[0]!["seen"]))];
      const missing = open.filter(({ seq }) => !seen.has(seq));
      return new Set([...sure, ...still, ...(await unseenOf(run, missing))]);
    },
    async checkpoint(tailing, what) {
      const tells = what.published.length > 0 && (what.crowded || what.tell || onPublish === "delete");
      if (what.handed.length > 0 || tells) return whole(tailing, what);
      const marks = mark();
      const answers = await connection.batch(durable, `SELECT ${drawnOf(n)}`, ...marks, keep(tailing, what));
      return report(answers[1]![0]![0]!, answers.at(-1)![0], false);
    },
    async detours(aggregates, ms) {
      const { run } = connection;
      const running = await runningOf(
        run,
        aggregates.flatMap(({ xid }) => xid ?? []),
      );
      return detoursOf(
        run,
        n,
        aggregates.filter(({ xid }) => xid === null || !running.has(xid)),
        ms,
      );
    },
  };
}

/** Which of these wait behind one of their aggregate that cannot be seen. */
function behind(handed: readonly Handed[], unseen: ReadonlySet<bigint>): ReadonlySet<bigint> {
  if (unseen.size === 0) return unseen;
  const waiting = new Set<string>();
  const all = new Set<bigint>();
  for (const { claim } of handed) {
    const key = aggregateKey(claim.envelope);
    if (!unseen.has(claim.envelope.seq) && !waiting.has(key)) continue;
    waiting.add(key);
    all.add(claim.envelope.seq);
  }
  return all;
}

const readProof = (proof: string): { readonly drawn: bigint; readonly xid: bigint } => {
  const [drawn, xid] = proof.split(" ").map(BigInt) as [bigint, bigint];
  return { drawn, xid };
};

/** Every transaction that drew one of these numbers has ended, and none of the events is the log's and pending. */
async function isSettled(run: Run, n: Names, { proof }: Entrance): Promise<boolean> {
  if (proof === null) return true;
  const { drawn, xid } = readProof(proof);
  const [row] = await run(
    `SELECT pg_snapshot_xmin(pg_current_snapshot()) >= $1::xid8 AND NOT EXISTS (
       SELECT 1 FROM generate_series(0, ${LANES - 1}) AS l (lane) CROSS JOIN LATERAL (
         SELECT 1 FROM ${n.outbox} o WHERE o.lane = l.lane AND ${logged} AND o.seq > (SELECT floor FROM ${n.tail}) AND o.seq <= $2::bigint LIMIT 1) o
     ) AS settled`,
    [String(xid), String(drawn)],
  );
  return row!["settled"] === "t";
}

/** A relay that takes a lane changes the row that is locked here. */
async function ownsAll(run: Run, n: Names, { relay, lanes }: Holding): Promise<boolean> {
  const rows = await run(`SELECT lane, epoch FROM ${n.lanes} WHERE owner = $1`, [relay]);
  return rows.length === LANES && rows.every((row) => lanes.get(Number(row["lane"])) === BigInt(row["epoch"]!));
}
