import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Outgoing, PublishResult, Sink } from "../../src/contracts/sink.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { startTcpProxy } from "../support/tcp-proxy.ts";

export const aggregates = 8;
export const writers = 10;

/** Accounts in a database: each transaction raises one's counter and puts it into its event, so that 1, 2, 3 … must arrive without a gap. */
export interface Bank {
  raise(id: string, how: Raise): Promise<void>;
  /** How many events are not published yet, and the counters. */
  look(): Promise<{ readonly open: number; readonly counters: ReadonlyMap<string, number> }>;
  /** For a relay, with connections of its own; to another port than the server's where one is given. */
  store(port?: number): RelayOptions["store"] & AsyncDisposable;
  readonly port: number;
  /** Opens so many more accounts, all of them in so few lanes. */
  crowd(accounts: number, lanes: number): Promise<void>;
  /** Raises these for a while, from inside the server: a quarter of the transactions stays open for 10 to 40 ms. */
  raiseCrowd(seconds: number): Promise<unknown>;
}

interface Raise {
  /** Writes another row first: its transaction is older than its turn. */
  readonly elsewhere: boolean;
  readonly waitMs: number;
  readonly keep: boolean;
}

async function write(bank: Bank, ended: () => boolean): Promise<number> {
  let committed = 0;
  while (!ended()) {
    const chance = Math.random();
    const keep = Math.random() >= 0.1;
    const waitMs = chance > 0.8 ? Math.random() * 20 : 0;
    await bank.raise(`a-${1 + Math.floor(Math.random() * aggregates)}`, { elsewhere: chance < 0.3, waitMs, keep });
    if (keep) committed += 1;
  }
  return committed;
}

/** What arrived first, in the order of its arrival. */
function recordingSink(): Sink & { readonly arrived: Map<string, number[]> } {
  const arrived = new Map<string, number[]>();
  const seen = new Set<string>();
  return {
    name: "recording",
    can: { maxBytes: 1_000_000 },
    arrived,
    connect: () => Promise.resolve(),
    probe: () => Promise.resolve(),
    async publish(batch: readonly Outgoing[]): Promise<readonly PublishResult[]> {
      await sleep(Math.random() * 5);
      for (const { envelope } of batch) {
        if (!seen.has(envelope.id)) arrive(arrived, envelope);
        seen.add(envelope.id);
      }
      return batch.map(() => ({ status: "stored" }));
    },
    [Symbol.asyncDispose]: () => Promise.resolve(),
  };
}

export function arrive(arrived: Map<string, number[]>, { aggregateId, data }: Outgoing["envelope"]): void {
  const { n } = JSON.parse(Buffer.from(data).toString()) as { n: number };
  arrived.set(aggregateId, [...(arrived.get(aggregateId) ?? []), n]);
}

export function inOrder(arrived: ReadonlyMap<string, readonly number[]>, counters: ReadonlyMap<string, number>): void {
  for (const [id, n] of counters) expect([id, arrived.get(id) ?? []]).toEqual([id, Array.from({ length: n }, (_, at) => at + 1)]);
}

async function until(done: () => Promise<boolean>, ms: number): Promise<void> {
  for (const end = Date.now() + ms; !(await done());) {
    if (Date.now() > end) throw new Error("it did not happen in time");
    await sleep(50);
  }
}

const relayOptions = { leaseMs: 2_000, batch: 50, pollIntervalMs: 20, observe: false } as const;

/** Ten writers on hot aggregates, and four relays that come and go. */
export async function relaysComeAndGo(bank: Bank): Promise<void> {
  const sink = recordingSink();
  let writing = true;
  const work = Promise.all(Array.from({ length: writers }, () => write(bank, () => !writing)));
  const comeAndGo = async (nth: number): Promise<void> => {
    while (writing) {
      await using store = bank.store();
      const relay = createRelay({ store, sink, ...relayOptions });
      await relay.start();
      await sleep(500 + nth * 300 + Math.random() * 1_000);
      await (Math.random() < 0.7 ? relay.drain() : relay.stop());
      await relay.stopped;
    }
  };
  const relays = Array.from({ length: 4 }, (_, nth) => comeAndGo(nth));
  await sleep(8_000);
  writing = false;
  const committed = (await work).reduce((sum, n) => sum + n, 0);
  await Promise.all(relays);
  await using store = bank.store();
  const last = createRelay({ store, sink, ...relayOptions });
  await last.start();
  await until(async () => (await bank.look()).open === 0, 30_000);
  await last.drain();
  const { counters } = await bank.look();
  expect([...counters.values()].reduce((sum, n) => sum + n, 0)).toBe(committed);
  inOrder(sink.arrived, counters);
}

/**
 * Two relays at a distance, and two lanes that fill up faster than one pass of a claim empties them. A quarter of the transactions stays open
 * for a while: it has its number, and what commits behind it may be claimed before it.
 */
export async function relaysAtADistance(bank: Bank): Promise<void> {
  await bank.crowd(12, 2);
  const sink = recordingSink();
  await using proxy = await startTcpProxy(bank.port);
  for (const direction of ["up", "down"] as const) proxy.fault(direction, { latencyMs: 3 });
  await using first = bank.store(proxy.port);
  await using second = bank.store(proxy.port);
  const relays = [first, second].map((store) => createRelay({ store, sink, ...relayOptions, leaseMs: 10_000, batch: 200 }));
  await Promise.all(relays.map((relay) => relay.start()));
  await Promise.all(Array.from({ length: writers }, () => bank.raiseCrowd(8)));
  await until(async () => (await bank.look()).open === 0, 60_000);
  await Promise.all(relays.map((relay) => relay.drain()));
  inOrder(sink.arrived, (await bank.look()).counters);
}

/** Twenty restarts under load; one relay lives through them all. */
export async function restartedUnderLoad(bank: Bank, restart: () => Promise<void>): Promise<void> {
  const sink = recordingSink();
  await using store = bank.store();
  const relay = createRelay({ store, sink, ...relayOptions });
  await relay.start();
  let writing = true;
  const writer = async (): Promise<void> => {
    while (writing) await write(bank, () => !writing).catch(() => sleep(20)); // a cut COMMIT may have been kept: the counters tell
  };
  const work = Promise.all(Array.from({ length: 4 }, writer));
  for (let round = 0; round < 20; round++) {
    await sleep(150 + Math.random() * 250);
    await restart();
  }
  let before: ReadonlyMap<string, number> | undefined;
  /** Each aggregate has had an event since the last restart. */
  const raised = async (): Promise<boolean> => {
    const { counters } = await bank.look();
    before ??= counters;
    return [...counters].every(([id, n]) => n > before!.get(id)!);
  };
  await until(() => raised().catch(() => false), 60_000);
  writing = false;
  await work;
  await until(async () => (await bank.look().catch(() => ({ open: 1 }))).open === 0, 60_000);
  await relay.drain();
  const { counters } = await bank.look();
  expect(Math.min(...counters.values())).toBeGreaterThan(0);
  inOrder(sink.arrived, counters);
}
