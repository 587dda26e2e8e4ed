import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import type { Claim, Holding, Outcome, SettleReport, Window } from "../../src/contracts/outbox-store.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { mysql, type MysqlConnection, type MysqlStore } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import type { Server } from "../servers/server.ts";
import { casesOn, type MysqlHarness } from "./mysql-harness.ts";

const all = [...Array(64).keys()];
const by = { who: "test", dryRun: false };

await describeWith("mariadb", "hazards on MariaDB", () => {
  let server: Server;
  const cases = casesOn((database) => server.url(database));
  beforeAll(async () => {
    server = await startMariadb();
  });
  afterAll(async () => {
    await cases.end();
    await server[Symbol.asyncDispose]();
  });

  const own = (name: string, body: (harness: MysqlHarness) => Promise<void>): void => {
    test(name, async () => {
      const harness = await cases.create();
      try {
        await body(harness);
      } finally {
        await harness.close();
      }
    });
  };

  describe("a scan begins at its floor", () => {
    own("and does not see what is below it: the scan of published rows is really left out", async (harness) => {
      const relay = await relayOn(harness.store);
      await add(harness, "order-1", 50);
      await relay.drain();
      await raised(relay, harness);
      // A row that is brought back by hand, past everything that could tell, shows where the scan begins.
      await harness.pool.query("UPDATE outbox SET status = 'PENDING' WHERE aggregate_id = 'order-1' ORDER BY seq LIMIT 1");
      expect(await relay.drain()).toEqual([]);
      const other = mysql({ pool: harness.pool }); // floors belong to one process, and start at 0
      expect(await relayWith(other, relay.holding).drain()).toEqual(["order-1"]);
    });

    own("and a row that commits late, below rows that were published meanwhile, is still claimed", async (harness) => {
      const relay = await relayOn(harness.store);
      const late = await harness.begin();
      await addIn(harness, late.tx, "late", 1); // the lowest number of all
      for (const end = Date.now() + 4_000; Date.now() < end; await sleep(50)) {
        await add(harness, "order-1", 1);
        expect(await relay.drain()).toEqual(["order-1"]);
      }
      await late.commit();
      expect(await relay.drain()).toEqual(["late"]);
    });

    own("and an operator in another process brings old rows back above it", async (harness) => {
      const relay = await relayOn(harness.store);
      const [dead] = await add(harness, "order-1", 1);
      await relay.settle(await relay.claim(), (claim) => ({ claim, as: "parked", error: "no", release: false }));
      await add(harness, "order-2", 20);
      await relay.drain();
      await raised(relay, harness);
      const elsewhere = mysql({ pool: harness.pool });
      await elsewhere.operator.redrive({ ids: [dead!] }, by);
      expect(await relay.drain()).toEqual(["order-1"]);
    });

    own("and a delayed event far below it joins its lane when its moment has come", async (harness) => {
      const relay = await relayOn(harness.store);
      await harness.pool.query(
        "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, available_at) VALUES ('Order', 'later', 'E', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)",
      );
      await add(harness, "order-1", 5);
      await relay.drain();
      await raised(relay, harness);
      await harness.clock.advance(2 * 3_600_000);
      expect(await relay.drain()).toEqual(["later"]);
    });

    own("and a follower that is released far below it comes after its predecessor", async (harness) => {
      const relay = await relayOn(harness.store);
      const [cause] = await add(harness, "order-1", 3);
      await relay.settle(await relay.claim(), (claim) =>
        claim.envelope.id === cause ? { claim, as: "retry", afterMs: 600_000, error: "no" } : { claim, as: "returned" },
      );
      await add(harness, "order-2", 5);
      await relay.drain();
      await raised(relay, harness);
      await harness.clock.advance(700_000);
      expect(await relay.drain()).toEqual(["order-1", "order-1", "order-1"]);
    });

    own("which is 0 for a lane that was taken over with an old backlog", async (harness) => {
      const first = await relayOn(harness.store, "first");
      await add(harness, "order-1", 3);
      const window = await first.claim();
      await add(harness, "order-2", 3);
      await harness.clock.advance(70_000);
      const second = await relayOn(harness.store, "second"); // the same process: its floors for the first relay must not count
      expect(await second.drain(true)).toEqual(["order-1", "order-1", "order-1"]);
      expect(await second.drain()).toEqual(["order-2", "order-2", "order-2"]);
      expect(await first.settle(window, published)).toMatchObject({ settled: 0 });
    });

    own("which a lane leaves behind when it comes back from another relay", async (harness) => {
      const first = await relayOn(harness.store, "first");
      const [cause] = await add(harness, "order-1", 2);
      await first.settle(await first.claim(), (claim) =>
        claim.envelope.id === cause ? { claim, as: "parked", error: "no", release: false } : { claim, as: "returned" },
      );
      await add(harness, "order-2", 20);
      await first.drain();
      await raised(first, harness);
      await harness.store.leases.leave("first");
      const elsewhere = mysql({ pool: harness.pool });
      const second = await relayOn(elsewhere, "second");
      await elsewhere.operator.discard({ ids: [cause!] }, by);
      await second.settle(await second.claim(), (claim) => ({ claim, as: "returned" })); // the follower is free, far below
      await elsewhere.leases.leave("second");
      expect(await (await relayOn(harness.store, "first")).drain()).toEqual(["order-1"]);
    });

    own("which does not pass what is in flight, though all above it is published", async (harness) => {
      const relay = await relayOn(harness.store);
      await add(harness, "order-1", 3);
      const inFlight = await relay.claim();
      for (const end = Date.now() + 3_000; Date.now() < end; await sleep(50)) {
        await add(harness, "order-2", 1);
        const window = await harness.store.outbox.claim(relay.holding, { limit: 100, open: [inFlight.id!], narrow: false });
        await relay.settle(window, published);
      }
      await relay.settle(inFlight, (claim) => ({ claim, as: "returned" }));
      expect(await relay.drain()).toEqual(["order-1", "order-1", "order-1"]);
    });

    own("which nobody without the right to see transactions has: everything is claimed all the same", async (harness) => {
      await harness.pool.query("CREATE USER IF NOT EXISTS plain@'127.0.0.1'");
      await harness.pool.query(`GRANT ALL ON ${harness.database}.* TO plain@'127.0.0.1'`);
      await using store = mysql({ url: server.url(harness.database).replace("root@", "plain@") });
      const relay = await relayOn(store);
      for (let round = 0; round < 5; round++) {
        await add(harness, "order-1", 10);
        expect(await relay.drain()).toHaveLength(10);
        await sleep(120);
      }
      await harness.pool.query("UPDATE outbox SET status = 'PENDING' ORDER BY seq LIMIT 1");
      expect(await relay.drain()).toEqual(["order-1"]);
      expect((await store.operator.status()).watch).toMatchObject({
        writer: "unknown",
        horizon: "unknown",
        unseen: expect.stringContaining("GRANT PROCESS") as string,
      });
    });
  });

  own("somebody's backlog keeps no other lane waiting, however deep it is", async (harness) => {
    const relay = await relayOn(harness.store);
    await harness.pool.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) SELECT 'Order', 'flood', 'E', '1' FROM seq_1_to_20000",
    );
    await add(harness, "quiet", 1);
    const { claims } = await harness.store.outbox.claim(relay.holding, { limit: 50, open: [], narrow: false });
    expect(claims.map(({ envelope }) => envelope.aggregateId)).toContain("quiet");
    expect(claims.length).toBe(50);
  });

  own("a settle that waited while its lane was taken changes nothing of the new owner's", async (harness) => {
    const { pool, store } = harness;
    await add(harness, "order-1", 1);
    const old = await relayOn(store, "old");
    const window = await old.claim();
    // The new owner is in the middle of its take: it has the lane rows.
    const taker = await pool.getConnection();
    await taker.query("BEGIN");
    await taker.query("UPDATE waybill_lanes SET owner = 'new', epoch = epoch + 1");
    await taker.query("UPDATE outbox SET status = 'PUBLISHED', published_at = UTC_TIMESTAMP(6)");
    const settled = old.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "late" }));
    await Promise.race([settled, waitsForLock(harness)]);
    await taker.query("COMMIT");
    taker.release();
    expect(await settled).toEqual({ settled: 0, lost: [window.claims[0]!.lane] });
    expect(await harness.rows("SELECT status, last_error FROM outbox")).toEqual([["PUBLISHED", null]]);
  });

  own("a claim that waited for a settle finds the hold that it made", async (harness) => {
    const { pool, store } = harness;
    const [first] = await add(harness, "order-1", 1);
    const relay = await relayOn(store);
    const window = await relay.claim();
    // A settle in the middle: it has the lane rows, and nobody sees its hold yet.
    const settling = await pool.getConnection();
    await settling.query("SET TRANSACTION ISOLATION LEVEL READ COMMITTED");
    await settling.query("BEGIN");
    await settling.query("SELECT lane FROM waybill_lanes FOR UPDATE");
    await settling.query("UPDATE outbox SET status = 'FAILED', next_attempt_at = UTC_TIMESTAMP(6) + INTERVAL 1 HOUR");
    await settling.query(
      `INSERT INTO waybill_holds (aggregate_type, aggregate_id, lane, cause_seq, why) SELECT aggregate_type, aggregate_id, lane, seq, 'no' FROM outbox`,
    );
    await settling.query("DELETE FROM waybill_windows");
    const [follower] = await add(harness, "order-1", 1); // commits while its aggregate is being held
    const claimed = store.outbox.claim(relay.holding, { limit: 10, open: [window.id!], narrow: false });
    await Promise.race([claimed, waitsForLock(harness)]);
    await settling.query("COMMIT");
    settling.release();
    expect((await claimed).id).toBeNull();
    expect((await store.operator.show(follower!))!.state).toBe("BLOCKED");
    await harness.clock.advance(2 * 3_600_000);
    expect(await relay.drainIds()).toEqual([first, follower]);
  });

  own("a follower that commits while its aggregate is being held stays behind it", async (harness) => {
    const relay = await relayOn(harness.store);
    for (let round = 0; round < 20; round++) {
      const name = `order-${round}`;
      const [first] = await add(harness, name, 1);
      const window = await relay.claim();
      const follower = await harness.begin();
      await addIn(harness, follower.tx, name, 1);
      await Promise.all([relay.settle(window, (claim) => ({ claim, as: "retry", afterMs: 0, error: "no" })), follower.commit()]);
      const [cause, ...more] = (await relay.claim()).claims.map(({ envelope }) => envelope.id);
      expect([cause, more]).toEqual([first, []]);
      expect(await relay.drainIds()).toHaveLength(2);
    }
  });

  own("a redrive that races with a claim sends each event once, and before its followers", async (harness) => {
    const relay = await relayOn(harness.store);
    for (let round = 0; round < 20; round++) {
      const [dead] = await add(harness, `order-${round}`, 3);
      await relay.settle(await relay.claim(), (claim) =>
        claim.envelope.id === dead ? { claim, as: "parked", error: "no", release: false } : { claim, as: "returned" },
      );
      const [, ids] = await Promise.all([harness.store.operator.redrive({ ids: [dead!] }, by), relay.drainIds()]);
      const sent = [...ids, ...(await relay.drainIds())];
      expect(sent).toHaveLength(3);
      expect(sent[0]).toBe(dead);
    }
  });

  own("nothing of the relay's waits for an open transaction of a writer, nor the other way round", async (harness) => {
    const relay = await relayOn(harness.store);
    await add(harness, "order-1", 3);
    const open = await harness.begin(); // REPEATABLE READ, as users have it
    await addIn(harness, open.tx, "order-2", 3);
    const window = await relay.claim();
    await relay.settle(window, (claim) => ({ claim, as: "parked", error: "no", release: false }));
    await harness.store.operator.discard({}, by);
    await relay.drain();
    expect(await harness.store.operator.purge(new Date(Date.now() + 60_000), by)).toBeGreaterThan(0);
    await addIn(harness, open.tx, "order-1", 3);
    await open.commit();
    expect(await relay.drain()).toHaveLength(6);
  });

  own("numbers beyond 2^53 are told apart", async (harness) => {
    await harness.pool.query("ALTER TABLE outbox AUTO_INCREMENT = 9007199254740993");
    const relay = await relayOn(harness.store);
    const ids = await add(harness, "order-1", 4);
    const window = await relay.claim();
    expect(window.claims.map(({ envelope }) => envelope.seq)).toEqual([0n, 1n, 2n, 3n].map((n) => 9007199254740993n + n));
    await relay.settle(window, (claim) =>
      claim.envelope.id === ids[0] ? { claim, as: "published" } : { claim, as: "retry", afterMs: 0, error: claim.envelope.id },
    );
    expect(await harness.rows("SELECT status, last_error FROM outbox ORDER BY seq")).toEqual([
      ["PUBLISHED", null],
      ...ids.slice(1).map((id) => ["FAILED", id]),
    ]);
    await harness.pool.query("DELETE FROM outbox");
    await harness.pool.query("ALTER TABLE outbox AUTO_INCREMENT = 1");
  });
});

interface Relay {
  readonly holding: Holding;
  claim(): Promise<Window>;
  settle(window: Window, judge: (claim: Claim) => Outcome): Promise<SettleReport>;
  /** Publishes what there is; the aggregates in the order they were claimed. */
  drain(narrow?: boolean): Promise<string[]>;
  drainIds(): Promise<string[]>;
}

const published = (claim: Claim): Outcome => ({ claim, as: "published" });

async function relayOn(store: MysqlStore, name = "r1"): Promise<Relay> {
  await store.leases.renew(name, 60_000);
  return relayWith(store, { relay: name, lanes: await store.leases.take(name, all) });
}

function relayWith(store: MysqlStore, holding: Holding): Relay {
  const claim = (narrow = false): Promise<Window> => store.outbox.claim(holding, { limit: 1_000, open: [], narrow });
  const settle: Relay["settle"] = async (window, judge) =>
    window.id === null ? { settled: 0, lost: [] } : store.outbox.settle(holding.relay, window.id, window.claims.map(judge));
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

/** Claims until everything that was added so far is proven to be decided. */
async function raised(relay: Relay, harness: MysqlHarness): Promise<void> {
  await add(harness, "mark", 1);
  for (const end = Date.now() + 3_000; Date.now() < end; await sleep(60)) await relay.drain();
}

async function add(harness: MysqlHarness, aggregateId: string, count: number): Promise<string[]> {
  return harness.store.transactor.transaction(harness.db, (tx) => addIn(harness, tx, aggregateId, count));
}

async function addIn({ store }: MysqlHarness, tx: MysqlConnection, aggregateId: string, count: number): Promise<string[]> {
  const drafts = Array.from({ length: count }, (_, n) => ({ aggregateType: "Order", aggregateId, type: "E", payload: { n } }));
  return (await createOutbox({ store }).add(tx, drafts)).map(({ id }) => id);
}

async function waitsForLock({ rows }: MysqlHarness): Promise<void> {
  while ((await rows("SELECT 1 FROM information_schema.INNODB_TRX WHERE trx_state = 'LOCK WAIT'")).length === 0) await sleep(110);
}
