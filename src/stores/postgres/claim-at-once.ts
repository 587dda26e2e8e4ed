import type { Claim, ClaimRequest, Holding } from "../../contracts/outbox-store.ts";
import { LANES } from "../../core/lane.ts";
import { boundsOf } from "../../core/within-bytes.ts";
import { claimOf } from "../kit/claim.ts";
import { readRow, type StoredRow } from "../kit/stored.ts";
import type { Connection } from "./connection.ts";
import { type Expected, highestOf, least, type Sighting } from "./floors.ts";
import { literal, type Names } from "./names.ts";
import { bigints, list } from "./rows.ts";

export interface AtOnce {
  readonly claims: readonly Claim[];
  /** The limit, or a lane's share, cut the claim short. */
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
  /** The last claim left something behind. Each lane probably has events, so checking for them first would scan twice. */
  readonly behind: boolean;
  readonly id: string;
}

const every = Array.from({ length: LANES }, (_, lane) => lane);

/**
 * Every argument has its type, here and wherever a function of ours is called: then no function of the same name, in a schema where others
 * may create functions too, can match better.
 *
 * A whole claim in one round trip, for the ordinary case: every lane is as the relay knows it, no failed or delayed event is due, nothing
 * is being released or suspect, no event's aggregate is held, and all payloads fit. Otherwise it takes nothing, and `claim` looks closer.
 *
 * It locks and scans only the lanes with something to claim, or all lanes where the relay is behind.
 */
const statement = ({ names: n, holding: { relay, lanes }, request, expected, stale, wants, behind, id }: Asked): string => {
  const { bytes, largest } = boundsOf(request);
  const per = (of: ReadonlyMap<number, number | bigint>): string => `'{${every.map((lane) => of.get(lane) ?? "NULL").join()}}'`;
  const texts = (of: readonly string[]): string => `ARRAY[${of.map(literal).join()}]::text[]`;
  const given = [
    ...[
      `${literal(relay)}::text`,
      ...[lanes, expected.redrives, expected.floors].map((of) => `${per(of)}::bigint[]`),
      `${per(wants)}::integer[]`,
    ],
    ...[
      texts(request.open),
      texts(stale),
      behind,
      `${least(...expected.floors.values())}::bigint`,
      `${literal(id)}::text`,
      `${request.limit}::integer`,
    ],
    ...[bytes, largest].map((most) => `${Math.min(most, Number.MAX_SAFE_INTEGER)}::bigint`),
    ...[`${expected.server}::numeric`, `${expected.highest}::bigint`],
    ...[`'${list(expected.anchors.map(({ seq }) => seq))}'::bigint[]`, texts(expected.anchors.map(({ id }) => id))],
  ];
  return `SELECT * FROM ${n.claim}(${given.join(", ")})`;
};

type Row = readonly (string | null)[];

/** Null when something is out of the ordinary. */
export async function claimAtOnce(connection: Connection, asked: Asked): Promise<AtOnce | null> {
  const { holding, wants, expected, request } = asked;
  const [answer] = await connection.batch(statement(asked));
  const facts = answer!.at(-1)!;
  const rows = answer!.slice(0, -1);
  if (facts[14] !== "t") return null;
  const [, xid, oldest, locked, shared, , , , , drawn] = facts;
  const found = new Map<number, number>();
  const last = new Map<number, bigint>();
  const claims: Claim[] = [];
  const payload = payloadsOf(rows);
  for (const row of rows) {
    const seq = BigInt(row[0]!);
    const lane = Number(row[12]);
    found.set(lane, (found.get(lane) ?? 0) + 1);
    last.set(lane, seq);
    const claim = { lane, failures: Math.max(0, Number(row[13])), deaths: 0 };
    claims.push(claimOf(readRow(storedOf(seq, row, payload(row))), holding, claim, null));
  }
  const full = rows.length >= request.limit;
  const usedUp = [...found].filter(([lane, count]) => full || (shared === "true" && count >= wants.get(lane)!)).map(([lane]) => lane);
  /** Lanes without a row were seen by the snapshot of the locking statement. */
  const upTo = new Map<number, bigint | null>([...wants.keys()].map((lane) => [lane, null]));
  for (const lane of usedUp) upTo.set(lane, last.get(lane)!);
  if (full) for (const lane of bigints(locked)) if (!found.has(Number(lane))) upTo.delete(Number(lane)); // its rows were left out
  return {
    claims,
    cut: full || usedUp.length > 0,
    sighting: {
      turn: expected.turn,
      reopened: new Map(),
      redrives: expected.redrives,
      anchor: highestOf(claims),
      proof: { drawn: BigInt(drawn!), xid: BigInt(xid ?? 0), oldest: BigInt(oldest!), upTo },
    },
  };
}

/** The latest moment that a Date can hold. */
const lastMs = 8_640_000_000_000_000;

/** All payloads of a claim lie in one buffer: a small buffer per payload would cost as much as sending it. */
function storedOf(seq: bigint, row: Row, data: Uint8Array): StoredRow {
  return {
    seq,
    id: row[1]!,
    aggregateType: row[2]!,
    aggregateId: row[3]!,
    type: row[4]!,
    contentType: row[5]!,
    idempotencyKey: row[6] ?? undefined,
    eventVersion: Number(row[7]),
    headers: row[8]!,
    createdAt: new Date(Math.max(-lastMs, Math.min(lastMs, Math.floor(Number(row[9]) / 1_000)))),
    data,
  };
}

function payloadsOf(rows: readonly Row[]): (row: Row) => Uint8Array {
  const bytes = Buffer.allocUnsafeSlow(rows.reduce((sum, row) => sum + bytesOf(row), 0));
  let at = 0;
  return (row) => {
    const from = at;
    at += row[10] === null ? bytes.write(row[11] ?? "", at, "hex") : bytes.write(row[10]!, at, "utf8");
    return bytes.subarray(from, at);
  };
}

const bytesOf = (row: Row): number => (row[10] === null ? (row[11]?.length ?? 0) / 2 : Buffer.byteLength(row[10]!));
