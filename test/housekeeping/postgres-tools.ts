import pg from "pg";
import type { Claim, Outcome, Window } from "../../src/contracts/outbox-store.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import type { Draft } from "../../src/core/event.ts";
import { postgres, type PgClient, type PostgresOptions, type PostgresStore } from "../../src/stores/postgres/index.ts";

export const day = 86_400_000;

let made = 0;

/** A store in a schema of its own, and what a test does beside it. */
export interface Place extends AsyncDisposable {
  readonly schema: string;
  readonly pool: pg.Pool;
  readonly store: PostgresStore;
  /** The same tables, under another role or with other options. */
  open(options?: Partial<PostgresOptions> & { readonly role?: string }): PostgresStore;
  sql<T extends object>(text: string, values?: unknown[]): Promise<T[]>;
  add(...drafts: Draft[]): Promise<void>;
}

export async function placeOn(url: string, options: Partial<PostgresOptions> = {}): Promise<Place> {
  const schema = `keep_${process.pid}_${++made}`;
  const pools: pg.Pool[] = [];
  const poolOf = (role?: string): pg.Pool => {
    const pool = new pg.Pool({ connectionString: url, max: 20, ...(role === undefined ? {} : { options: `-c role=${role}` }) });
    pool.on("error", () => undefined);
    pools.push(pool);
    return pool;
  };
  const pool = poolOf();
  const store = postgres({ pool: pool, schema, ...options });
  const outbox = createOutbox({ store });
  return {
    schema,
    pool,
    store,
    open: ({ role, ...more } = {}) => postgres({ pool: role === undefined ? pool : poolOf(role), schema, ...more }),
    sql: async <T extends object>(text: string, values?: unknown[]) => (await pool.query<T>(text.replaceAll("{s}", schema), values)).rows,
    add: async (...drafts) => void (await store.transactor.transaction(pool, (tx: PgClient) => outbox.add(tx, drafts))),
    async [Symbol.asyncDispose]() {
      await pool.query(`DROP SCHEMA IF EXISTS ${schema} CASCADE`);
      await Promise.all(pools.map((each) => each.end()));
    },
  };
}

/** A relay's part, by hand. */
interface Hand {
  claim(): Promise<Window>;
  settle(window: Window, judge?: (claim: Claim) => Outcome): Promise<void>;
  release(topic: string): Promise<void>;
  /** Publishes all there is; payloads in the order of their claims. */
  drain(): Promise<Claim[]>;
}

export async function handOn(store: Pick<PostgresStore, "leases" | "outbox">, relay = "hand"): Promise<Hand> {
  await store.leases.renew(relay, 600_000);
  const lanes = await store.leases.take(
    relay,
    Array.from({ length: 64 }, (_, lane) => lane),
  );
  const hand: Hand = {
    claim: () => store.outbox.claim({ relay, lanes }, { limit: 1_000, open: [], narrow: false }),
    async settle(window, judge = (claim) => ({ claim, as: "published" })) {
      await store.outbox.settle(relay, window.id!, window.claims.map(judge));
    },
    release: async (topic) => void (await store.outbox.release({ relay, lanes }, topic, 1_000)),
    async drain() {
      const claims: Claim[] = [];
      for (let window = await hand.claim(); window.id !== null || window.more; window = await hand.claim()) {
        claims.push(...window.claims);
        if (window.id !== null) await hand.settle(window);
      }
      return claims;
    },
  };
  return hand;
}

export const draft = (aggregateId: string, n: number, more: Partial<Draft> = {}): Draft => ({
  ...{ aggregateType: "Order", aggregateId, type: "Changed", payload: { n } },
  ...more,
});

const numberOf = ({ envelope }: Claim): number => (JSON.parse(Buffer.from(envelope.data).toString()) as { n: number }).n;

/** Each aggregate's numbers, in the order they came. */
export function byAggregate(claims: readonly Claim[]): Record<string, number[]> {
  const found: Record<string, number[]> = {};
  for (const claim of claims) (found[claim.envelope.aggregateId] ??= []).push(numberOf(claim));
  return found;
}

/** What an administrator runs: the printed statements, with grants for roles that exist. */
export async function createRoles(pool: pg.Pool): Promise<void> {
  for (const role of ["waybill_writer", "waybill_relay", "waybill_subscriber", "waybill_operator"])
    await pool.query(
      `DO $$ BEGIN IF NOT EXISTS (SELECT 1 FROM pg_roles WHERE rolname = '${role}') THEN CREATE ROLE ${role} NOLOGIN; END IF; END $$`,
    );
}
