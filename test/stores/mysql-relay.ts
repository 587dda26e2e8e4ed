import type { Claim, Holding, Outcome, OutboxStore, SettleReport, Window } from "../../src/contracts/outbox-store.ts";
import { systemClock, type Clock } from "../../src/core/clock.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import { systemRandom } from "../../src/core/random.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createConnection } from "../../src/stores/mysql/connection.ts";
import type { MysqlConnection, MysqlStore } from "../../src/stores/mysql/index.ts";
import { namesOf } from "../../src/stores/mysql/names.ts";
import { createOutboxStore } from "../../src/stores/mysql/outbox-store.ts";
import type { MysqlHarness } from "./mysql-harness.ts";

export const all = [...Array(64).keys()];

/** What a relay does with a store, without the relay. */
export interface Relay {
  readonly holding: Holding;
  claim(): Promise<Window>;
  settle(window: Window, judge: (claim: Claim) => Outcome): Promise<SettleReport>;
  /** Publishes what there is; the aggregates in the order they were claimed. */
  drain(narrow?: boolean): Promise<string[]>;
  drainIds(): Promise<string[]>;
}

export type RelayStore = Pick<MysqlStore, "leases" | "outbox">;

export const published = (claim: Claim): Outcome => ({ claim, as: "published" });
export const parked = (claim: Claim): Outcome => ({ claim, as: "parked", error: "no", release: false });
export const returned = (claim: Claim): Outcome => ({ claim, as: "returned" });

export async function relayOn(store: RelayStore, name = "r1", lanes: readonly number[] = all): Promise<Relay> {
  await store.leases.renew(name, 60_000);
  return relayWith(store, { relay: name, lanes: await store.leases.take(name, lanes) });
}

export function relayWith({ outbox }: Pick<MysqlStore, "outbox">, holding: Holding): Relay {
  const claim = (narrow = false): Promise<Window> => outbox.claim(holding, { limit: 1_000, open: [], narrow });
  const settle: Relay["settle"] = async (window, judge) =>
    window.id === null ? { settled: 0, lost: [] } : outbox.settle(holding.relay, window.id, window.claims.map(judge));
  const drain = async (narrow: boolean): Promise<Claim[]> => {
    const claims: Claim[] = [];
    for (;;) {
      const window = await claim(narrow);
      if (window.id === null && !window.more) return claims;
      claims.push(...window.claims);
      await settle(window, published);
    }
  };
  return {
    holding,
    claim,
    settle,
    drain: async (narrow = false) => (await drain(narrow)).map(({ envelope }) => envelope.aggregateId),
    drainIds: async () => (await drain(false)).map(({ envelope }) => envelope.id),
  };
}

/** Time that goes faster: floors, which take many seconds to move, do so while a test waits. */
export function fastClock(times: number): Clock & { skip(ms: number): void } {
  let skipped = 0;
  return { ...systemClock, monotonic: () => systemClock.monotonic() * times + skipped, skip: (ms) => void (skipped += ms) };
}

/** The store under another clock than the system's; the server's time stays as it is. */
export function underClock({ store, pool }: MysqlHarness, clock: Clock, onPublish: "keep" | "delete" = "keep"): RelayStore {
  const connection = createConnection({ pool: pool, place: "the test's database", statementTimeoutMs: 30_000 });
  const newId = uuidv7(systemClock, systemRandom);
  const outbox: OutboxStore = createOutboxStore({ connection, names: namesOf(undefined), clock, random: systemRandom, newId, onPublish });
  return { leases: store.leases, outbox };
}

export async function add(harness: MysqlHarness, aggregateId: string, count: number): Promise<string[]> {
  return harness.store.transactor.transaction(harness.db, (tx) => addIn(harness, tx, aggregateId, count));
}

export async function addIn(
  { store }: Pick<MysqlHarness, "store">,
  tx: MysqlConnection,
  aggregateId: string,
  count: number,
): Promise<string[]> {
  const drafts = Array.from({ length: count }, (_, n) => ({ aggregateType: "Order", aggregateId, type: "E", payload: { n } }));
  return (await createOutbox({ store }).add(tx, drafts)).map(({ id }) => id);
}
