import { isDeepStrictEqual } from "node:util";
import fc from "fast-check";
import { expect } from "vitest";
import type { EventRecord } from "../../src/contracts/operator.ts";
import type { Claim, Outcome } from "../../src/contracts/outbox-store.ts";
import type { StoreHarness } from "../../src/conformance/index.ts";
import { states, type Row } from "../../src/core/event.ts";

const ttlMs = 60_000;
const relays = 3;
const aggregates = ["a", "b", "c", "skip-d", "skip-e"];
const by = { who: "history", dryRun: false };

const relay = fc.nat(relays - 1);
const step = fc.oneof(
  {
    weight: 5,
    arbitrary: fc.record({
      do: fc.constant("add" as const),
      aggregate: fc.nat(4),
      count: fc.integer({ min: 1, max: 3 }),
      key: fc.option(fc.nat(5)),
    }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("claim" as const), relay, limit: fc.integer({ min: 1, max: 6 }), narrow: fc.boolean() }),
  },
  {
    weight: 6,
    arbitrary: fc.record({ do: fc.constant("settle" as const), relay, judgements: fc.array(fc.nat(7), { minLength: 1, maxLength: 6 }) }),
  },
  { weight: 3, arbitrary: fc.record({ do: fc.constant("take" as const), relay, lanes: fc.constantFrom("all" as const, "even" as const) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("freeze" as const), relay }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("crash" as const), relay }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("give" as const), relay }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("lose" as const), relay }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("release" as const), relay, limit: fc.integer({ min: 1, max: 2 }) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constant("wait" as const), ms: fc.constantFrom(1_000, 6_000) }) },
  { weight: 2, arbitrary: fc.record({ do: fc.constantFrom("redrive" as const, "discard" as const), aggregate: fc.nat(4) }) },
  { weight: 1, arbitrary: fc.record({ do: fc.constant("purge" as const) }) },
);
type Step = typeof step extends fc.Arbitrary<infer T> ? T : never;

interface HeldWindow {
  readonly id: string;
  readonly claims: readonly Claim[];
  /** Aggregates of which an earlier event was not published; the rest must be returned. */
  readonly stopped: Set<string>;
}

interface Player {
  name: string;
  frozen: boolean;
  lanes: Map<number, bigint>;
  windows: HeldWindow[];
}

/**
 * Relays that claim, fail, freeze, die and come back, users who add, operators who act, in any order. Whatever happens:
 * nothing is claimed past an earlier event of its aggregate, each aggregate is published in order, status tells the
 * truth, and once the trouble ends everything is published.
 */
export async function keepsItsPromises<Db, Tx>(
  create: () => Promise<StoreHarness<Db, Tx>>,
  options: fc.Parameters<[Step[]]>,
): Promise<void> {
  await fc.assert(
    fc.asyncProperty(fc.array(step, { maxLength: 120, size: "max" }), async (steps) => {
      const harness = await create();
      try {
        const world = new World(harness);
        for (const each of steps) {
          await world.play(each);
          await world.statusTellsTheTruth();
        }
        await world.everythingIsPublishedInTheEnd();
      } finally {
        await harness.close();
      }
    }),
    options,
  );
}

class World<Db, Tx> {
  readonly #harness: StoreHarness<Db, Tx>;
  readonly #players: Player[];
  readonly #keys = new Map<number, string>();
  readonly #lastPublished = new Map<string, bigint>();
  #made = 0;

  constructor(harness: StoreHarness<Db, Tx>) {
    this.#harness = harness;
    this.#players = Array.from({ length: relays }, (_, n) => ({ name: `r${n}`, frozen: false, lanes: new Map(), windows: [] }));
  }

  async play(step: Step): Promise<void> {
    const { store, clock } = this.#harness;
    const player = "relay" in step ? this.#players[step.relay]! : null;
    switch (step.do) {
      case "add":
        return this.#add(aggregates[step.aggregate]!, step.count, step.key);
      case "claim":
        return this.#claim(player!, step.limit, step.narrow);
      case "settle":
        return this.#settle(player!, step.judgements);
      case "take": {
        await store.leases.renew(player!.name, ttlMs);
        player!.frozen = false;
        const wanted = [...Array(64).keys()].filter((lane) => step.lanes === "all" || lane % 2 === 0);
        for (const [lane, epoch] of await store.leases.take(player!.name, wanted)) player!.lanes.set(lane, epoch);
        return;
      }
      case "freeze":
        // It goes on with what it has later on, and does not know that others may have taken its lanes.
        player!.frozen = true;
        return this.#pass(ttlMs + 1_000);
      case "crash":
        await this.#die(player!);
        return;
      case "give": {
        const inUse = new Set(player!.windows.flatMap(({ claims }) => claims.map(({ lane }) => lane)));
        const idle = [...player!.lanes.keys()].filter((lane) => !inUse.has(lane));
        await store.leases.give(player!.name, idle);
        for (const lane of idle) player!.lanes.delete(lane);
        return;
      }
      case "lose":
        // An answer got lost: the relay never learns of this window.
        player!.windows.pop();
        return;
      case "release":
        await store.outbox.release({ relay: player!.name, lanes: player!.lanes }, "t", step.limit);
        return;
      case "wait":
        await clock.advance(step.ms);
        return;
      case "redrive":
      case "discard": {
        const aggregateId = aggregates[step.aggregate]!;
        // A letter that was skipped is published out of order by its nature.
        if (step.do === "discard" || !aggregateId.startsWith("skip")) await store.operator[step.do]({ aggregateId }, by);
        return;
      }
      case "purge":
        await store.operator.purge(new Date(clock.now()), by);
    }
  }

  async #add(aggregateId: string, count: number, key: number | null): Promise<void> {
    const { store, db } = this.#harness;
    const rows = Array.from({ length: count }, (_, n) => this.#row(aggregateId, n === 0 && key !== null ? `key-${key}` : null));
    const added = await store.transactor.transaction(db, (tx) => store.writer.append(tx, rows));
    if (key === null) return;
    expect(added[0]).toEqual({ id: this.#keys.get(key) ?? rows[0]!.id, duplicate: this.#keys.has(key) });
    if (!this.#keys.has(key)) this.#keys.set(key, rows[0]!.id);
  }

  #row(aggregateId: string, idempotencyKey: string | null): Row {
    const id = `00000000-0000-7000-8000-${(++this.#made).toString(16).padStart(12, "0")}`;
    return {
      id,
      aggregateType: "T",
      aggregateId,
      type: "E",
      eventVersion: 1,
      payload: "{}",
      contentType: "application/json",
      headers: {},
      idempotencyKey,
      availableAt: null,
    };
  }

  async #claim(player: Player, limit: number, narrow: boolean): Promise<void> {
    const { store } = this.#harness;
    const open = player.windows.map(({ id }) => id);
    const { id, claims } = await store.outbox.claim({ relay: player.name, lanes: player.lanes }, { limit, open, narrow });
    expect(claims.length).toBeLessThanOrEqual(limit);
    if (id === null) return;
    const { lanes } = await store.leases.look();
    // What it had under an older epoch, before it lost the lane and won it back, is not in its hand any more.
    const mine = [...player.windows.flatMap((window) => window.claims), ...claims].filter(
      ({ lane, epoch }) => player.lanes.get(lane) === epoch,
    );
    const inHand = new Set(mine.map(({ envelope }) => envelope.id));
    expect(inHand.size, "nothing is claimed twice").toBe(mine.length);
    for (const { envelope, lane, epoch } of claims) {
      expect(lanes[lane]).toEqual({ lane, owner: player.name, epoch });
      for (const earlier of await this.#events(envelope.aggregateId)) {
        if (earlier.seq >= envelope.seq || inHand.has(earlier.id)) continue;
        expect(
          envelope.aggregateId.startsWith("skip") ? ["PUBLISHED", "DISCARDED", "DEAD"] : ["PUBLISHED", "DISCARDED"],
          `${envelope.id} past ${earlier.id}`,
        ).toContain(earlier.state);
      }
    }
    player.windows.push({ id, claims, stopped: new Set() });
  }

  async #settle(player: Player, judgements: readonly number[]): Promise<void> {
    const { store } = this.#harness;
    const window = player.windows.shift();
    if (window === undefined) return;
    const before = new Map<string, EventRecord | null>();
    for (const { envelope } of window.claims) before.set(envelope.id, await store.operator.show(envelope.id));
    const outcomes = window.claims.map((claim, n) => {
      const { aggregateId } = claim.envelope;
      const outcome = judge(claim, window.stopped.has(aggregateId) ? 4 : judgements[n % judgements.length]!);
      if (outcome.as !== "published") for (const each of [window, ...player.windows]) each.stopped.add(aggregateId);
      return outcome;
    });
    const { lost } = await store.outbox.settle(player.name, window.id, outcomes);
    for (const lane of lost) player.lanes.delete(lane);
    for (const { claim, as } of outcomes) {
      const { id, aggregateId, seq } = claim.envelope;
      const after = await store.operator.show(id);
      if (lost.includes(claim.lane)) expect(after).toEqual(before.get(id));
      if (as !== "published" || after?.state !== "PUBLISHED" || before.get(id)?.state === "PUBLISHED") continue;
      expect(seq, `${id} was published after a later one of its aggregate`).toBeGreaterThan(this.#lastPublished.get(aggregateId) ?? 0n);
      this.#lastPublished.set(aggregateId, seq);
    }
  }

  /** Its lease runs out; the process that comes after it has another name. */
  async #die(player: Player): Promise<void> {
    player.frozen = true;
    await this.#pass(ttlMs + 1_000);
    Object.assign(player, { name: `${player.name}'`, frozen: false, lanes: new Map(), windows: [] });
  }

  async #pass(ms: number): Promise<void> {
    const { store, clock } = this.#harness;
    const { live } = await store.leases.look();
    for (let passed = 0; passed < ms; passed += ttlMs / 2) {
      for (const { name, frozen } of this.#players) if (!frozen && live.includes(name)) await store.leases.renew(name, ttlMs);
      await clock.advance(ttlMs / 2);
    }
  }

  async #events(aggregateId?: string): Promise<readonly EventRecord[]> {
    return this.#harness.store.operator.list({ limit: 100_000, ...(aggregateId === undefined ? {} : { aggregateId }) });
  }

  async statusTellsTheTruth(): Promise<void> {
    const look = async () => {
      const events = await this.#events();
      const { states: told, holds } = await this.#harness.store.operator.status();
      const counted = Object.fromEntries(states.map((state) => [state, events.filter((event) => event.state === state).length]));
      return { events, told, holds, counted };
    };
    let seen = await look();
    // A lease that ran out between the two questions has changed what is under way: once more.
    if (!isDeepStrictEqual(seen.told, seen.counted)) seen = await look();
    expect(seen.told).toEqual(seen.counted);
    const held = new Set(seen.holds.list.map(({ aggregateId }) => aggregateId));
    for (const { state, aggregateId, id } of seen.events)
      if (state === "BLOCKED") expect(held, `${id} is BLOCKED by nothing`).toContain(aggregateId);
  }

  async everythingIsPublishedInTheEnd(): Promise<void> {
    const { store, clock } = this.#harness;
    for (const player of this.#players) player.frozen = true;
    await this.#pass(2 * ttlMs);
    await store.leases.renew("last", ttlMs * 1_000);
    const lanes = await store.leases.take("last", [...Array(64).keys()]);
    expect(lanes.size).toBe(64);
    const holding = { relay: "last", lanes };
    for (let round = 0; (await this.#events()).some(({ state }) => state !== "PUBLISHED" && state !== "DISCARDED"); round++) {
      if (round === 60) expect(await this.#events()).toEqual([]);
      await clock.advance(10_000);
      await store.operator.redrive({}, by);
      await store.outbox.release(holding, "t", 10);
      const { id, claims } = await store.outbox.claim(holding, { limit: 100, open: [], narrow: round % 2 === 0 });
      if (id !== null)
        await store.outbox.settle(
          "last",
          id,
          claims.map((claim) => judge(claim, 0)),
        );
    }
    // What remains of holds goes with the next claims.
    for (let round = 0; round < 2; round++) await store.outbox.claim(holding, { limit: 100, open: [], narrow: false });
    const { holds, breakers, window } = await store.operator.status();
    expect({ aggregates: holds.aggregates, blocked: holds.blocked, breakers, window }).toEqual({
      aggregates: 0,
      blocked: 0,
      breakers: [],
      window: { events: 0, suspects: 0 },
    });
  }
}

function judge(claim: Claim, judgement: number): Outcome {
  if (judgement < 4) return { claim, as: "published" };
  if (judgement === 4) return { claim, as: "returned" };
  if (judgement === 5) return { claim, as: "retry", afterMs: 5_000, error: "refused" };
  if (judgement === 6) return { claim, as: "parked", error: "refused for good", release: claim.envelope.aggregateId.startsWith("skip") };
  return { claim, as: "returned", destination: { topic: "t", why: "no answer" } };
}
