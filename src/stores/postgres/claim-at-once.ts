import type { Claim, ClaimRequest, Holding } from "../../contracts/outbox-store.ts";
import { boundsOf } from "../../core/within-bytes.ts";
import { claimOf } from "../kit/claim.ts";
import { readRow } from "../kit/stored.ts";
import { isHeld } from "./claim.ts";
import type { Connection } from "./connection.ts";
import { type Expected, least, type Sighting } from "./floors.ts";
import { literal, type Names } from "./names.ts";
import { available, now, pending } from "./pending.ts";
import { bigints, list } from "./rows.ts";

/** Tells one server, and one run of it, from another. */
export const serverStart = "extract(epoch FROM pg_postmaster_start_time())";
/** The highest number that a sequence has given out. */
export const drawnOf = "CASE WHEN s.is_called THEN s.last_value ELSE 0 END";

export interface AtOnce {
  readonly claims: readonly Claim[];
  /** The limit, or a lane's share, cut it short. */
  readonly cut: boolean;
  readonly sighting: Sighting;
}

interface Asked {
  readonly names: Names;
  readonly holding: Holding;
  readonly request: ClaimRequest;
  readonly expected: Expected;
  /** Windows that the relay has forgotten. */
  readonly stale: readonly string[];
  /** How many rows of each lane are looked at. */
  readonly wants: ReadonlyMap<number, number>;
  /** There was more than the last claim took: each lane is likely to have something, and to look first would be to scan twice. */
  readonly behind: boolean;
  readonly id: string;
}

/** Of `created_at`, as a whole number: floats come as the session's settings say. */
const micros = `CASE WHEN isfinite(created_at) THEN (date_part('epoch', created_at) * 1000000)::bigint
  WHEN created_at > now() THEN 9223372036854775807 ELSE -9223372036854775807 END`;

const columns = ["id", "aggregate_type", "aggregate_id", "event_type", "content_type", "idempotency_key"];

/**
 * A whole claim in one round trip, as long as nothing is out of the ordinary: every lane is as it was known, nothing is due, delayed, being
 * released or suspect, and all payloads fit. It takes nothing otherwise, and `claim` looks closer.
 *
 * Only lanes with something to claim are locked, and only they are scanned; where the relay is behind, all of them. The lock comes in a statement before the scan, so that the scan
 * sees whatever was done to these lanes until then. Every lane is scanned once, by one snapshot, so no event can be taken whose predecessor
 * became visible in between.
 */
const statements = ({ names: n, holding: { relay, lanes }, request, expected, stale, wants, behind, id }: Asked): readonly string[] => {
  const owned = [...lanes.keys()];
  const [mine, all] = [literal(relay), `'${list(owned)}'::smallint[]`];
  const { bytes, largest } = boundsOf(request);
  const per = (of: (lane: number) => number | bigint, type: string): string => `'${list(owned.map(of))}'::${type}[]`;
  const [floors, redrives] = [expected.floors, expected.redrives].map((of) => per((lane) => of.get(lane)!, "bigint"));
  const texts = (of: readonly string[]): string => `ARRAY[${of.map(literal).join()}]::text[]`;
  const open = `SELECT unnest(seqs) AS seq FROM ${n.windows} WHERE "window" = ANY (${texts(request.open)}) AND relay = ${mine}`;
  const ready = (floor: string, lane: string): string =>
    `${n.outbox} o WHERE o.lane = ${lane} AND ${pending} AND o.seq > ${floor} AND o.seq NOT IN (SELECT seq FROM open)`;
  return [
    `SELECT ${drawnOf} FROM ${n.seq} s`,
    `WITH open AS MATERIALIZED (${open})
     SELECT set_config('waybill.lanes', coalesce(array_agg(lane)::text, '{}'), true), pg_snapshot_xmin(pg_current_snapshot()), (SELECT min(seq) FROM open) FROM (
       SELECT t.lane FROM unnest(${all}, ${floors}) AS g (lane, floor) JOIN ${n.lanes} t ON t.lane = g.lane
       WHERE t.owner = ${mine} ${behind ? "" : `AND EXISTS (SELECT 1 FROM ${ready("g.floor", "g.lane")})`} ORDER BY t.lane FOR UPDATE OF t) l`,
    `WITH l AS MATERIALIZED (
       SELECT g.lane, g.floor, g.want
       FROM unnest(${all}, ${per((lane) => lanes.get(lane)!, "bigint")}, ${redrives}, ${floors}, ${per((lane) => wants.get(lane)!, "integer")}) AS g (lane, epoch, reopened, floor, want)
       JOIN ${n.lanes} t ON t.lane = g.lane AND t.owner = ${mine} AND t.epoch = g.epoch AND t.reopened = g.reopened
       WHERE g.lane = ANY (current_setting('waybill.lanes')::smallint[])
     ), open AS MATERIALIZED (${open}), seen AS MATERIALIZED (
       SELECT (SELECT count(*) FROM l) = cardinality(current_setting('waybill.lanes')::smallint[])
          AND NOT EXISTS (SELECT 1 FROM unnest(${all}, ${redrives}) AS g (lane, reopened) JOIN ${n.lanes} t ON t.lane = g.lane AND t.reopened <> g.reopened)
          AND ${serverStart} = ${expected.server} AND (SELECT ${drawnOf} FROM ${n.seq} s) >= ${expected.highest}
          AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE status = 'FAILED' AND next_attempt_at <= ${now} AND lane = ANY (${all}))
          AND NOT EXISTS (SELECT 1 FROM ${n.outbox} WHERE ${available} AND lane = ANY (${all}))
          AND NOT EXISTS (SELECT 1 FROM ${n.holds} WHERE free_to IS NOT NULL AND lane = ANY (${all}))
          AND NOT EXISTS (SELECT 1 FROM ${n.suspects} WHERE lane = ANY (${all}))
          AND NOT EXISTS (SELECT 1 FROM ${n.destinations} WHERE lane = ANY (${all})) AS ordinary,
          EXISTS (SELECT 1 FROM ${n.holds}) AS holds
     ), ready AS MATERIALIZED (
       SELECT o.*, CASE WHEN (SELECT holds FROM seen) THEN ${isHeld(n)} ELSE false END AS held
       FROM l CROSS JOIN LATERAL (
         SELECT o.seq, ${columns.map((column) => `o.${column}`).join(", ")}, o.event_version, o.headers::text AS headers, o.created_at, o.payload,
                o.payload_bytes, o.lane, o.retry_count, row_number() OVER (ORDER BY o.seq) AS place
         FROM ${ready("l.floor", "l.lane")} ORDER BY o.seq LIMIT l.want
       ) o WHERE (SELECT ordinary FROM seen) ORDER BY o.place, o.seq LIMIT ${request.limit}
     ), fits AS MATERIALIZED (
       SELECT coalesce(sum(octet_length(headers) + coalesce(octet_length(payload), octet_length(payload_bytes), 0)
                + ${columns
                  .slice(0, 5)
                  .map((column) => `octet_length(${column})`)
                  .join(" + ")} + coalesce(octet_length(idempotency_key), 0)), 0) <= ${Math.min(bytes, Number.MAX_SAFE_INTEGER)}
          AND coalesce(max(coalesce(octet_length(payload), octet_length(payload_bytes))), 0) <= ${Math.min(largest, Number.MAX_SAFE_INTEGER)} AS fits FROM ready
     ), made AS (
       INSERT INTO ${n.windows} ("window", relay, width, seqs)
       SELECT ${literal(id)}, ${mine}, count(*) + (SELECT count(*) FROM open), array_agg(seq ORDER BY seq)
       FROM ready WHERE NOT held AND (SELECT fits FROM fits) HAVING count(*) > 0
     ), forgotten AS (
       DELETE FROM ${n.windows} WHERE relay = ${mine} AND "window" = ANY (${texts(stale)})
     ), blocked AS (
       UPDATE ${n.outbox} SET status = 'BLOCKED', next_attempt_at = NULL WHERE seq = ANY (ARRAY(SELECT seq FROM ready WHERE held))
     )
     (SELECT seq, ${columns.join(", ")}, event_version, headers, ${micros}, payload, encode(payload_bytes, 'hex'), lane,
        retry_count, held FROM ready WHERE (SELECT fits FROM fits) ORDER BY seq)
     UNION ALL SELECT (SELECT min(seq) FROM open), pg_current_xact_id_if_assigned()::text, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, (SELECT ordinary FROM seen) AND (SELECT fits FROM fits)`,
  ];
};

type Row = readonly (string | null)[];

/** Null when something is out of the ordinary. */
export async function claimAtOnce(connection: Connection, asked: Asked): Promise<AtOnce | null> {
  const { holding, wants, expected, request } = asked;
  const [[drawn], [locked], rows] = (await connection.batch(statements(asked))) as [Row[], Row[], Row[]];
  const facts = rows.pop()!;
  if (facts[14] !== "t") return null;
  const found = new Map<number, number>();
  /** Lanes without a row were seen by the snapshot of the lock. */
  const lowest = new Map<number, bigint | null>([...wants.keys()].map((lane) => [lane, null]));
  const claims: Claim[] = [];
  for (const row of rows) {
    const [seq, lane] = [BigInt(row[0]!), Number(row[12])];
    const before = found.get(lane) ?? 0;
    if (before === 0) lowest.set(lane, seq);
    found.set(lane, before + 1);
    if (row[14] === "t") continue;
    const claim = { lane, failures: Math.max(0, Number(row[13])), deaths: 0 };
    claims.push(claimOf(readRow(storedOf(seq, row)), holding, claim, null));
  }
  const full = rows.length >= request.limit;
  if (full) for (const lane of bigints(locked![0])) if (!found.has(Number(lane))) lowest.delete(Number(lane)); // its rows were left out
  // In flight by either snapshot: a settle that ends between the two may give back an event of a lane that only the first one saw.
  const inFlight = lowestOf([facts[0], locked![2], rows[0]?.[0]]);
  return {
    claims,
    cut: full || [...found].some(([lane, count]) => count >= wants.get(lane)!),
    sighting: {
      reopened: new Map(),
      redrives: expected.redrives,
      proof: { drawn: BigInt(drawn![0]!), xid: BigInt(facts[1] ?? 0), oldest: BigInt(locked![1]!), lowest, inFlight },
    },
  };
}

function lowestOf(seqs: readonly (string | null | undefined)[]): bigint | null {
  const known = seqs.flatMap((seq) => (seq === null || seq === undefined ? [] : [BigInt(seq)]));
  return known.length === 0 ? null : least(...known);
}

/** The latest moment that a Date can hold. */
const lastMs = 8_640_000_000_000_000;

function storedOf(seq: bigint, row: Row): Parameters<typeof readRow>[0] {
  const [, id, aggregateType, aggregateId, type, contentType, key, version, headers, created, payload, hex] = row as (string | null)[];
  return {
    ...{
      seq,
      id: id!,
      aggregateType: aggregateType!,
      aggregateId: aggregateId!,
      type: type!,
      contentType: contentType!,
      headers: headers!,
    },
    idempotencyKey: key ?? undefined,
    eventVersion: Number(version),
    data: payload === null ? Buffer.from(hex ?? "", "hex") : Buffer.from(payload!, "utf8"),
    createdAt: new Date(Math.max(-lastMs, Math.min(lastMs, Math.floor(Number(created) / 1_000)))),
  };
}
