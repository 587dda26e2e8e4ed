import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Claim, Holding, Outcome, Window } from "../../src/contracts/outbox-store.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres, type PgClient, type PostgresStore } from "../../src/stores/postgres/index.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { startStandby } from "../servers/standby.ts";
import { harnessOn, type PostgresHarness } from "./postgres-harness.ts";

const all = [...Array(64).keys()];
const by = { who: "test", dryRun: false };

await describeWith("postgres", "hazards on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    // A vacuum or an analysis that runs would keep the floors low.
    server = await startPostgres({ version: 15, settings: { autovacuum: "off" } });
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const create = harnessOn(() => server.url());

  const own = (name: string, body: (harness: PostgresHarness) => Promise<void>): void => {
    test(name, async () => {
      const harness = await create();
      try {
        await body(harness);
      } finally {
        await harness.close();
      }
    });
  };

  describe("a scan begins at its floor", () => {
    own("and a row that commits late, below rows that were published meanwhile, is still claimed", async (harness) => {
      const relay = await relayOn(harness.store);
      const late = await harness.begin();
      await add(harness, late.tx, "late", 1); // the lowest number of all
      for (let round = 0; round < 5; round++) {
        await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, `order-${round}`, 1));
        expect(await relay.drain()).toEqual([`order-${round}`]);
      }
      await late.commit();
      expect(await relay.drain()).toEqual(["late"]);
    });

    own("and does not see what is below it: the scan of published rows is really left out", async (harness) => {
      const relay = await relayOn(harness.store);
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 50));
      await relay.drain();
      await relay.drain();
      // A row that is brought back by hand, past everything that could tell, shows where the scan begins.
      await harness.pool.query(`UPDATE ${harness.schema}.outbox SET status = 'PENDING' WHERE seq = 1`);
      expect(await relay.drain()).toEqual([]);
      const other = postgres({ pool: harness.pool, schema: harness.schema }); // floors belong to one process, and start at 0
      expect(await relayWith(other, relay.holding).drain()).toEqual(["order-1"]);
    });

    own(
      "with a number drawn before the transaction has its id, the floor would pass a row: the default draws it after",
      async (harness) => {
        const relay = await relayOn(harness.store);
        const { pool, schema } = harness;
        const [drawing, adding] = [await pool.connect(), await pool.connect()];
        const { rows: made } = await pool.query<{ expression: string }>(
          `SELECT pg_get_expr(adbin, adrelid) AS expression FROM pg_attrdef WHERE adrelid = '${schema}.outbox'::regclass AND adnum = 1`,
        );
        const xidOf = async (): Promise<string | null> => {
          const { rows } = await drawing.query<{ xid: string | null }>("SELECT pg_current_xact_id_if_assigned()::text AS xid");
          return rows[0]!.xid;
        };
        await drawing.query("BEGIN");
        await drawing.query(`SELECT ${made[0]!.expression}`);
        expect(await xidOf()).not.toBeNull();
        await drawing.query("ROLLBACK");
        // And in that order: a number that cannot be drawn leaves the transaction with its id.
        const idWithoutNumber = async (expression: string): Promise<string | null> => {
          await drawing.query("BEGIN; SAVEPOINT s");
          const failure = await drawing.query(`SELECT ${expression}`).catch((error: unknown) => error);
          expect(failure).toMatchObject({ code: "2200H" });
          await drawing.query("ROLLBACK TO s");
          const xid = await xidOf();
          await drawing.query("ROLLBACK");
          return xid;
        };
        await pool.query(`ALTER SEQUENCE ${schema}.waybill_seq MAXVALUE 2; SELECT setval('${schema}.waybill_seq', 2)`);
        expect(await idWithoutNumber(made[0]!.expression)).not.toBeNull();
        expect(await idWithoutNumber(`nextval('${schema}.waybill_seq')`), "the naive form").toBeNull();
        // The first number after that is logged, which gives its transaction an id as well.
        await pool.query(`ALTER SEQUENCE ${schema}.waybill_seq NO MAXVALUE; SELECT nextval('${schema}.waybill_seq')`);

        // The naive form: the number first, the transaction's id later.
        await adding.query("BEGIN");
        const drawn = await adding.query<{ seq: string }>(`SELECT nextval('${schema}.waybill_seq') AS seq`);
        await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
        await relay.drain();
        await relay.drain();
        await adding.query(
          `INSERT INTO ${schema}.outbox (seq, aggregate_type, aggregate_id, event_type, payload) VALUES ($1, 'Order', 'order-1', 'E', '1')`,
          [drawn.rows[0]!.seq],
        );
        await adding.query("COMMIT");
        expect(await relay.drain(), "the naive form loses it from sight").toEqual([]);
        drawing.release();
        adding.release();
      },
    );

    own("and an operator in another process brings old rows back above it", async (harness) => {
      const relay = await relayOn(harness.store);
      const [dead] = await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
      const window = await relay.claim();
      await relay.settle(window, (claim) => ({ claim, as: "parked", error: "no", release: false }));
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-2", 20));
      await relay.drain();
      await relay.drain();
      const elsewhere = postgres({ pool: harness.pool, schema: harness.schema });
      await elsewhere.operator.redrive({ ids: [dead!.id] }, by);
      expect(await relay.drain()).toEqual(["order-1"]);
    });

    own("which is 0 for a lane that was taken over with an old backlog", async (harness) => {
      const first = await relayOn(harness.store, "first");
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 3));
      const window = await first.claim();
      await harness.clock.advance(70_000);
      const second = await relayOn(harness.store, "second"); // the same process: its floors for the first relay must not count
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-2", 3));
      expect(await second.drain(true)).toEqual(["order-1", "order-1", "order-1"]);
      expect(await second.drain()).toEqual(["order-2", "order-2", "order-2"]);
      expect(await first.settle(window, published)).toMatchObject({ settled: 0 });
    });

    own("which a lane leaves behind when it comes back from another relay", async (harness) => {
      const first = await relayOn(harness.store, "first");
      const [cause] = await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 2));
      await first.settle(await first.claim(), (claim) =>
        claim.envelope.id === cause!.id ? { claim, as: "parked", error: "no", release: false } : { claim, as: "returned" },
      );
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-2", 20));
      await first.drain();
      await first.drain();
      await harness.store.leases.leave("first");
      const elsewhere = postgres({ pool: harness.pool, schema: harness.schema });
      const second = await relayOn(elsewhere, "second");
      await elsewhere.operator.discard({ ids: [cause!.id] }, by);
      await second.settle(await second.claim(), (claim) => ({ claim, as: "returned" })); // the follower is free, far below
      await elsewhere.leases.leave("second");
      expect(await (await relayOn(harness.store, "first")).drain()).toEqual(["order-1"]);
    });

    own("which goes back to what a settle gives back, though all above it is published", async (harness) => {
      const relay = await relayOn(harness.store);
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 3));
      const inFlight = await relay.claim();
      for (let round = 0; round < 3; round++) {
        await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-2", 1));
        const window = await harness.store.outbox.claim(relay.holding, { limit: 100, open: [inFlight.id!], narrow: false });
        await relay.settle(window, published);
      }
      await relay.settle(inFlight, (claim) => ({ claim, as: "returned" }));
      expect(await relay.drain()).toEqual(["order-1", "order-1", "order-1"]);
    });

    own("which goes back to what a settle did not find in its window", async (harness) => {
      const { store, pool, schema, db } = harness;
      const relay = await relayOn(store);
      await store.transactor.transaction(db, (tx) => add(harness, tx, "order-1", 1));
      const inFlight = await relay.claim();
      for (let round = 0; round < 3; round++) {
        await store.transactor.transaction(db, (tx) => add(harness, tx, "order-2", 1));
        await relay.settle(await store.outbox.claim(relay.holding, { limit: 100, open: [inFlight.id!], narrow: false }), published);
      }
      await pool.query(`DELETE FROM ${schema}.waybill_windows`);
      await relay.settle(inFlight, published);
      expect(await relay.drain()).toEqual(["order-1"]);
    });

    own("which does not pass what the limit left out", async (harness) => {
      const relay = await relayOn(harness.store);
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 30));
      let taken = 0;
      for (let round = 0; round < 30; round++) {
        const window = await harness.store.outbox.claim(relay.holding, { limit: 1, open: [], narrow: false });
        taken += window.claims.length;
        await relay.settle(window, published);
      }
      expect(taken).toBe(30);
    });

    test("and a failover to a standby whose numbers stepped back puts all floors back to 0", async () => {
      const primary = await startPostgres({ version: 15 });
      const standby = await startStandby(primary);
      const before = await harnessOn(() => primary.url())();
      const { schema } = before;
      await before.store.transactor.transaction(before.db, (tx) => add(before, tx, "order-1", 5));
      await standbyHas(standby.url(), `SELECT count(*) = 5 AS ok FROM ${schema}.outbox`);
      await standby.stop("fast"); // from here on the standby misses what the primary does
      const moving = movablePool(before.pool);
      const store = postgres({ pool: moving.pool, schema });
      const relay = await relayOn(store);
      await relay.drain();
      for (let n = 0; n < 50; n++) await before.store.transactor.transaction(before.db, (tx) => add(before, tx, `order-${n}`, 1));
      await relay.drain();
      await relay.drain();
      await primary.stop("immediate");
      await standby.start();
      await standby.promote();
      const after = await harnessAt(standby.url(), schema);
      moving.moveTo(after.pool);
      await after.store.leases.renew("r1", 60_000);
      const lanes = await after.store.leases.take("r1", all);
      // The same lanes and epochs as before, as far as the relay can tell: only the server has changed.
      const holding = { relay: relay.holding.relay, lanes: lanes.size === 64 ? lanes : relay.holding.lanes };
      expect((await relayWith(store, holding).drain()).length, "what the standby still has as pending").toBe(5);
      await after.store.transactor.transaction(after.db, (tx) => add(after, tx, "order-new", 3)); // numbers below the old floor
      expect(await relayWith(store, holding).drain()).toEqual(["order-new", "order-new", "order-new"]);
      await after.pool.end();
      await before.pool.end();
      await standby[Symbol.asyncDispose]();
      await primary[Symbol.asyncDispose]();
    });
  });

  own("a settle that waited while its lane was taken changes nothing of the new owner's", async (harness) => {
    const { pool, schema, store } = harness;
    await store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
    const old = await relayOn(store, "old");
    const window = await old.claim();
    // The new owner is in the middle of its take: it has the lane rows.
    const taker = await pool.connect();
    await taker.query("BEGIN");
    await taker.query(`UPDATE ${schema}.waybill_lanes SET owner = 'new', epoch = epoch + 1`);
    await taker.query(`UPDATE ${schema}.outbox SET status = 'PUBLISHED', published_at = now()`);
    const settled = old.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "late" }));
    await Promise.race([settled, waitsForLock(pool)]);
    await taker.query("COMMIT");
    taker.release();
    expect(await settled).toEqual({ settled: 0, lost: [window.claims[0]!.lane] });
    const { rows } = await pool.query(`SELECT status, last_error FROM ${schema}.outbox`);
    expect(rows).toEqual([{ status: "PUBLISHED", last_error: null }]);
  });

  own("a settle of published events that waited while its lane was taken settles nothing", async (harness) => {
    const { pool, schema, store } = harness;
    await store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
    const old = await relayOn(store, "old");
    const window = await old.claim();
    const taker = await pool.connect();
    await taker.query("BEGIN");
    await taker.query(`UPDATE ${schema}.waybill_lanes SET owner = 'new', epoch = epoch + 1`);
    const settled = old.settle(window, (claim) => ({ claim, as: "published" }));
    await Promise.race([settled, waitsForLock(pool)]);
    await taker.query("COMMIT");
    taker.release();
    expect(await settled).toEqual({ settled: 0, lost: [window.claims[0]!.lane] });
    expect((await pool.query(`SELECT status FROM ${schema}.outbox`)).rows).toEqual([{ status: "PENDING" }]);
  });

  own("two settles of one window at once leave nothing of it open", async (harness) => {
    const { pool, schema, store } = harness;
    for (const id of ["order-1", "order-2"]) await store.transactor.transaction(harness.db, (tx) => add(harness, tx, id, 1));
    const relay = await relayOn(store, "relay");
    const window = await relay.claim();
    expect(window.claims).toHaveLength(2);
    const [first, second] = window.claims.map((claim) => [{ claim, as: "published" }] as const);
    const settle = (outcomes: typeof first) => store.outbox.settle("relay", window.id!, outcomes!);
    // Somebody has the first event's row: its settle stays under way while the other one comes.
    const slow = await pool.connect();
    await slow.query("BEGIN");
    await slow.query(`SELECT 1 FROM ${schema}.outbox WHERE seq = ${window.claims[0]!.envelope.seq} FOR UPDATE`);
    const waiting = settle(first);
    await waitsForLock(pool);
    const other = settle(second);
    await Promise.race([other, waitsForLock(pool, 2)]);
    await slow.query("COMMIT");
    slow.release();
    expect(await Promise.all([waiting, other])).toEqual([1, 1].map((settled) => ({ settled, lost: [] })));
    expect((await pool.query(`SELECT seqs FROM ${schema}.waybill_windows`)).rows).toEqual([]);
  });

  own("a redrive that waited while its event was given up looks again, and leaves it so", async (harness) => {
    const { pool, schema, store } = harness;
    const relay = await relayOn(store);
    const [dead] = await store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
    await relay.settle(await relay.claim(), (claim) => ({ claim, as: "parked", error: "no", release: false }));
    // Another operator is in the middle of a discard: it has the lane rows.
    const other = await pool.connect();
    await other.query("BEGIN");
    await other.query(`SELECT 1 FROM ${schema}.waybill_lanes ORDER BY lane FOR UPDATE`);
    await other.query(`UPDATE ${schema}.outbox SET status = 'DISCARDED'`);
    const redriven = store.operator.redrive({ aggregateId: "order-1" }, by);
    await Promise.race([redriven, waitsForLock(pool)]);
    await other.query("COMMIT");
    other.release();
    expect(await redriven).toMatchObject({ events: 0, ids: [] });
    expect((await store.operator.show(dead!.id))!.state).toBe("DISCARDED");
  });

  /** A claim that forgets a window looks closer: it does not go in one call. */
  for (const forgets of [false, true]) {
    const way = forgets ? "looking closer" : "in one call";
    own(`a claim that waited for a settle finds the hold that it made, ${way}, and leaves the follower behind it`, async (harness) => {
      const { pool, schema, store } = harness;
      const relay = await relayOn(store);
      const [cause] = await store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
      const inFlight = await relay.claim();
      await store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1)); // the follower, while it is under way
      const settling = await pool.connect();
      await settling.query("BEGIN");
      await settling.query(`SELECT 1 FROM ${schema}.waybill_lanes ORDER BY lane FOR UPDATE`);
      await settling.query(`UPDATE ${schema}.outbox SET status = 'FAILED', next_attempt_at = now() + interval '1 hour' WHERE id = $1`, [
        cause!.id,
      ]);
      await settling.query(
        `INSERT INTO ${schema}.waybill_holds (aggregate_type, aggregate_id, lane, cause_seq, why, since)
       SELECT aggregate_type, aggregate_id, lane, seq, 'no', now() FROM ${schema}.outbox WHERE id = $1`,
        [cause!.id],
      );
      const open = forgets ? [] : [inFlight.id!];
      const claimed = store.outbox.claim(relay.holding, { limit: 100, open, narrow: false });
      await Promise.race([claimed, waitsForLock(pool)]);
      await settling.query("COMMIT");
      settling.release();
      expect((await claimed).claims).toEqual([]);
      const { rows } = await pool.query(`SELECT status FROM ${schema}.outbox ORDER BY seq`);
      expect(rows).toEqual([{ status: "FAILED" }, { status: "BLOCKED" }]);
    });
  }

  own("a redrive that races with a claim sends each event once, and before its followers", async (harness) => {
    const relay = await relayOn(harness.store);
    for (let round = 0; round < 20; round++) {
      const name = `order-${round}`;
      const [dead] = await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, name, 3));
      const window = await relay.claim();
      await relay.settle(window, (claim) =>
        claim.envelope.id === dead!.id ? { claim, as: "parked", error: "no", release: false } : { claim, as: "returned" },
      );
      const [, ids] = await Promise.all([harness.store.operator.redrive({ ids: [dead!.id] }, by), relay.drainIds()]);
      const rest = await relay.drainIds();
      expect([...ids, ...rest]).toHaveLength(3);
      expect([...ids, ...rest][0]).toBe(dead!.id);
    }
  });

  own("a follower that commits while its aggregate is being held stays behind it", async (harness) => {
    const relay = await relayOn(harness.store);
    for (let round = 0; round < 20; round++) {
      const name = `order-${round}`;
      const [first] = await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, name, 1));
      const window = await relay.claim();
      const follower = await harness.begin();
      await add(harness, follower.tx, name, 1);
      await Promise.all([relay.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "no" })), follower.commit()]);
      const [cause, ...more] = (await relay.claim()).claims.map(({ envelope }) => envelope.id);
      expect([cause, more]).toEqual([first!.id, []]);
      expect(await relay.drainIds()).toHaveLength(2);
    }
  });

  describe("a claim in one round trip", () => {
    /** A relay that has found something last, and knows its floors: its next claim does not look before it claims. */
    const busy = async (harness: PostgresHarness): Promise<Awaited<ReturnType<typeof relayOn>>> => {
      const relay = await relayOn(harness.store);
      for (const name of ["warm-1", "warm-2"]) {
        await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, name, 1));
        const window = await relay.claim();
        await relay.settle(window, published);
      }
      return relay;
    };

    own("leaves the followers of a held event behind it, and takes what else is there", async (harness) => {
      const relay = await busy(harness);
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-1", 1));
      await relay.settle(await relay.claim(), (claim) => ({ claim, as: "retry", afterMs: 3_600_000, error: "not now" }));
      await harness.store.transactor.transaction(harness.db, (tx) => add(harness, tx, "order-2", 1));
      await relay.settle(await relay.claim(), published);
      await harness.store.transactor.transaction(harness.db, async (tx) => {
        await add(harness, tx, "order-1", 1);
        await add(harness, tx, "order-3", 1);
      });
      expect((await relay.claim()).claims.map(({ envelope }) => envelope.aggregateId)).toEqual(["order-3"]);
      const { rows } = await harness.pool.query(`SELECT status FROM ${harness.schema}.outbox WHERE aggregate_id = 'order-1' ORDER BY seq`);
      expect(rows).toEqual([{ status: "FAILED" }, { status: "BLOCKED" }]);
    });

    own("takes nothing past a delayed event of its aggregate that has become available", async (harness) => {
      const relay = await busy(harness);
      const outbox = createOutbox({ store: harness.store });
      const of = { aggregateType: "Order", aggregateId: "order-1", type: "E" };
      const first = await harness.store.transactor.transaction(harness.db, (tx) =>
        outbox.add(tx, { ...of, payload: 1, availableAt: new Date(Date.now() + 50) }),
      );
      await harness.pool.query(`SELECT pg_sleep(0.1)`);
      const second = await harness.store.transactor.transaction(harness.db, (tx) => outbox.add(tx, { ...of, payload: 2 }));
      expect((await relay.claim()).claims.map(({ envelope }) => envelope.id)).toEqual([first.id, second.id]);
    });

    /** An aggregate of this lane. */
    const inLane = async ({ pool, schema }: PostgresHarness, lane: number): Promise<string> => {
      const { rows } = await pool.query<{ id: string }>(
        `SELECT 'x' || i AS id FROM generate_series(1, 1000) i WHERE ${schema}.waybill_lane('Order', 'x' || i) = $1 LIMIT 1`,
        [lane],
      );
      return rows[0]!.id;
    };

    own("moves no floor past an event that a settle gives back while the claim waits for another lane", async (harness) => {
      const { pool, schema, store } = harness;
      const relay = await busy(harness);
      const claim = (open: readonly string[]): Promise<Window> => store.outbox.claim(relay.holding, { limit: 100, open, narrow: false });
      const [given, other] = [await inLane(harness, 5), await inLane(harness, 9)];
      const adds = (name: string) => store.transactor.transaction(harness.db, (tx) => add(harness, tx, name, 1));
      await adds(given);
      await adds(other);
      const first = await claim([]);
      await adds(other);
      // Whoever holds a lane: a settle, an operator, a relay that takes lanes.
      const holder = await pool.connect();
      await holder.query("BEGIN");
      await holder.query(`SELECT 1 FROM ${schema}.waybill_lanes WHERE lane = 9 FOR UPDATE`);
      const second = claim([first.id!]);
      await Promise.race([second, waitsForLock(pool)]);
      const [back, done] = first.claims;
      await store.outbox.settle("r1", first.id!, [{ claim: back!, as: "returned" }]);
      await holder.query("COMMIT");
      holder.release();
      await relay.settle(await second, published);
      await store.outbox.settle("r1", first.id!, [published(done!)]);
      await adds(given);
      expect(await relay.drain()).toEqual([given, given]);
    });

    own("sees an event that an operator put back below the floor of a lane with nothing else", async (harness) => {
      const { store } = harness;
      const relay = await busy(harness);
      const [quiet, loud] = [await inLane(harness, 5), await inLane(harness, 9)];
      const adds = (name: string) => store.transactor.transaction(harness.db, (tx) => add(harness, tx, name, 1));
      const [dead] = await adds(quiet);
      await relay.settle(await relay.claim(), (claim) => ({ claim, as: "parked", error: "no", release: true }));
      for (let round = 0; round < 3; round++) {
        await adds(loud);
        await relay.settle(await relay.claim(), published);
      }
      await store.operator.redrive({ ids: [dead!.id] }, by);
      await adds(loud);
      expect((await relay.claim()).claims.map(({ envelope }) => envelope.aggregateId)).toContain(quiet);
    });

    own("finds a lane's backlog in larger and larger shares, and starves no other lane", async (harness) => {
      const relay = await busy(harness);
      await harness.store.transactor.transaction(harness.db, async (tx) => {
        await add(harness, tx, "hot", 300);
        for (let n = 0; n < 20; n++) await add(harness, tx, `cold-${n}`, 1);
      });
      const sizes: number[] = [];
      const seen: string[] = [];
      for (let window = await relay.claim(); window.id !== null; window = await relay.claim()) {
        sizes.push(window.claims.length);
        seen.push(...window.claims.map(({ envelope }) => envelope.aggregateId));
        await relay.settle(window, published);
      }
      expect(seen.filter((name) => name === "hot")).toHaveLength(300);
      expect(new Set(seen.slice(0, sizes[0])).size, "every aggregate is in the first window").toBe(21);
      expect(Math.max(...sizes)).toBeGreaterThan(64);
    });
  });
});

async function add(
  { store }: Pick<PostgresHarness, "store">,
  tx: PgClient,
  aggregateId: string,
  count: number,
): Promise<readonly { id: string }[]> {
  const outbox = createOutbox({ store });
  return outbox.add(
    tx,
    Array.from({ length: count }, (_, n) => ({ aggregateType: "Order", aggregateId, type: "E", payload: { n } })),
  );
}

const published = (claim: Claim): Outcome => ({ claim, as: "published" });

async function relayOn(store: PostgresStore, name = "r1"): Promise<ReturnType<typeof relayWith>> {
  await store.leases.renew(name, 60_000);
  return relayWith(store, { relay: name, lanes: await store.leases.take(name, all) });
}

function relayWith(store: PostgresStore, holding: Holding) {
  const claim = (narrow = false): Promise<Window> => store.outbox.claim(holding, { limit: 100, open: [], narrow });
  const settle = (window: Window, judge: (claim: Claim) => Outcome): ReturnType<PostgresStore["outbox"]["settle"]> =>
    store.outbox.settle(holding.relay, window.id!, window.claims.map(judge));
  const drained = async (narrow: boolean): Promise<readonly Claim[]> => {
    const claims: Claim[] = [];
    for (;;) {
      const window = await claim(narrow);
      if (window.id === null && !window.more) return claims;
      claims.push(...window.claims);
      if (window.id !== null) await settle(window, published);
    }
  };
  return {
    holding,
    claim,
    settle,
    drain: async (narrow = false): Promise<readonly string[]> => (await drained(narrow)).map(({ envelope }) => envelope.aggregateId),
    drainIds: async (): Promise<readonly string[]> => (await drained(false)).map(({ envelope }) => envelope.id),
  };
}

async function waitsForLock(pool: PostgresHarness["pool"], sessions = 1): Promise<void> {
  for (;;) {
    const { rows } = await pool.query("SELECT 1 FROM pg_stat_activity WHERE wait_event_type = 'Lock'");
    if (rows.length >= sessions) return;
  }
}

async function standbyHas(url: string, question: string): Promise<void> {
  const { default: pg } = await import("pg");
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  for (let ok = false; !ok;) ok = (await client.query<{ ok: boolean }>(question).catch(() => ({ rows: [] }))).rows[0]?.ok ?? false;
  await client.end();
}

async function harnessAt(url: string, schema: string): Promise<Pick<PostgresHarness, "pool" | "store" | "db">> {
  const { default: pg } = await import("pg");
  const pool = new pg.Pool({ connectionString: url, max: 5 });
  pool.on("error", () => undefined);
  return { pool, store: postgres({ pool, schema }), db: pool };
}

/** One pool to the store, whichever server is behind it. */
function movablePool(first: PostgresHarness["pool"]): {
  readonly pool: PostgresHarness["pool"];
  moveTo(pool: PostgresHarness["pool"]): void;
} {
  let now = first;
  return {
    pool: { connect: () => now.connect(), end: () => now.end(), totalCount: 0 } as unknown as PostgresHarness["pool"],
    moveTo: (pool) => void (now = pool),
  };
}
