import { setTimeout as sleep } from "node:timers/promises";
import { createPool } from "mysql2/promise";
import { expect, test } from "vitest";
import { mysql } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";
import type { MysqlHarness } from "./mysql-harness.ts";
import {
  add,
  addIn,
  all,
  fastClock,
  parked,
  published,
  relayOn,
  relayWith,
  returned,
  underClock,
  type Relay,
  type RelayStore,
} from "./mysql-relay.ts";

const by = { who: "test", dryRun: false };

await describeWith("mariadb", "on MariaDB a scan begins at its floor", () => {
  const mariadb = ownMariadb();
  const { cases } = mariadb;
  const own = (name: string, body: (harness: MysqlHarness, store: RelayStore, clock: SteppedClock) => Promise<void>): void =>
    mariadb.own(name, (harness) => {
      const clock = steppedClock();
      return body(harness, underClock(harness, clock), clock);
    });

  own("and does not see what is below it: the scan of published rows is really left out", async (harness, store, clock) => {
    const relay = await relayOn(store);
    await add(harness, "order-1", 50);
    await relay.drain();
    await raised(relay, harness, clock);
    await harness.pool.query(broughtBack);
    expect(await relay.drain()).toEqual([]);
    const other = mysql({ pool: harness.pool }); // floors belong to one process, and start at 0
    expect(await relayWith(other, relay.holding).drain()).toEqual(["order-1"]);
  });

  own("and begins anew on a new connection, which may lead to another server, although nothing failed", async (harness, _, clock) => {
    let pool = harness.pool;
    const changing = { getConnection: () => pool.getConnection() } as typeof pool;
    const relay = await relayOn(underClock({ ...harness, pool: changing }, clock));
    await add(harness, "order-1", 50);
    await relay.drain();
    await raised(relay, harness, clock);
    await harness.pool.query(broughtBack);
    expect(await relay.drain()).toEqual([]);
    pool = createPool(mariadb.server.url(harness.database));
    expect(await relay.drain()).toEqual(["order-1"]);
    await pool.end();
  });

  own("and a row that commits late, below rows that were published meanwhile, is still claimed", async (harness, store, clock) => {
    const relay = await relayOn(store);
    const late = await harness.begin();
    await addIn(harness, late.tx, "late", 1); // the lowest number of all
    await looks(clock, async () => {
      await add(harness, "order-1", 1);
      expect(await relay.drain()).toEqual(["order-1"]);
    });
    await late.commit();
    expect(await relay.drain()).toEqual(["late"]);
  });

  own("and an operator in another process brings old rows back above it", async (harness, store, clock) => {
    const relay = await relayOn(store);
    const [dead] = await add(harness, "order-1", 1);
    await relay.settle(await relay.claim(), parked);
    await add(harness, "order-2", 20);
    await relay.drain();
    await raised(relay, harness, clock);
    const elsewhere = mysql({ pool: harness.pool });
    await elsewhere.operator.redrive({ ids: [dead!] }, by);
    expect(await relay.drain()).toEqual(["order-1"]);
  });

  own("and a delayed event far below it joins its lane when its moment has come", async (harness, store, clock) => {
    const relay = await relayOn(store);
    await harness.pool.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload, available_at) VALUES ('Order', 'later', 'E', '1', UTC_TIMESTAMP(6) + INTERVAL 1 HOUR)",
    );
    await add(harness, "order-1", 5);
    await relay.drain();
    await raised(relay, harness, clock);
    await harness.clock.advance(2 * 3_600_000);
    expect(await relay.drain()).toEqual(["later"]);
  });

  own("and a follower that is released far below it comes after its predecessor", async (harness, store, clock) => {
    const relay = await relayOn(store);
    const [cause] = await add(harness, "order-1", 3);
    await relay.settle(await relay.claim(), (claim) =>
      claim.envelope.id === cause ? { claim, as: "retry", afterMs: 600_000, error: "no" } : { claim, as: "returned" },
    );
    await add(harness, "order-2", 5);
    await relay.drain();
    await raised(relay, harness, clock);
    await harness.clock.advance(700_000);
    expect(await relay.drain()).toEqual(["order-1", "order-1", "order-1"]);
  });

  own("which is 0 for a lane that was taken over with an old backlog", async (harness, store) => {
    const first = await relayOn(store, "first");
    await add(harness, "order-1", 3);
    const window = await first.claim();
    await add(harness, "order-2", 3);
    await harness.clock.advance(70_000);
    const second = await relayOn(store, "second"); // the same process: its floors for the first relay must not count
    expect(await second.drain(true)).toEqual(["order-1", "order-1", "order-1"]);
    expect(await second.drain()).toEqual(["order-2", "order-2", "order-2"]);
    expect(await first.settle(window, published)).toMatchObject({ settled: 0 });
  });

  own("which a lane leaves behind when it comes back from another relay", async (harness, store, clock) => {
    const first = await relayOn(store, "first");
    const [cause] = await add(harness, "order-1", 2);
    await first.settle(await first.claim(), (claim) =>
      claim.envelope.id === cause ? { claim, as: "parked", error: "no", release: false } : { claim, as: "returned" },
    );
    await add(harness, "order-2", 20);
    await first.drain();
    await raised(first, harness, clock);
    await harness.store.leases.leave("first");
    const elsewhere = mysql({ pool: harness.pool });
    const second = await relayOn(elsewhere, "second");
    await elsewhere.operator.discard({ ids: [cause!] }, by);
    await second.settle(await second.claim(), returned); // the follower is free, far below
    await elsewhere.leases.leave("second");
    expect(await (await relayOn(store, "first")).drain()).toEqual(["order-1"]);
  });

  own("which does not pass what is in flight, though all above it is published", async (harness, store, clock) => {
    const relay = await relayOn(store);
    await add(harness, "order-1", 3);
    const inFlight = await relay.claim();
    await looks(clock, async () => {
      await add(harness, "order-2", 1);
      const window = await store.outbox.claim(relay.holding, { limit: 100, open: [inFlight.id!], narrow: false });
      await relay.settle(window, published);
    });
    await relay.settle(inFlight, returned);
    expect(await relay.drain()).toEqual(["order-1", "order-1", "order-1"]);
  });

  own("which nobody without the right to see transactions has: everything is claimed all the same", async (harness) => {
    await harness.pool.query("CREATE USER IF NOT EXISTS plain@'127.0.0.1'");
    await harness.pool.query(`GRANT ALL ON ${harness.database}.* TO plain@'127.0.0.1'`);
    await using store = mysql({ url: mariadb.server.url(harness.database).replace("root@", "plain@") });
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

  own("which is 0 for a lane that came back, for the look without a lock too", async (harness, store, clock) => {
    const first = await relayOn(store, "first");
    const [cause] = await add(harness, "order-1", 2);
    await first.settle(await first.claim(), (claim) => (claim.envelope.id === cause ? parked(claim) : returned(claim)));
    await add(harness, "order-2", 20);
    await first.drain();
    await raised(first, harness, clock);
    await harness.store.leases.leave("first");
    const elsewhere = mysql({ pool: harness.pool });
    const second = await relayOn(elsewhere, "second");
    await elsewhere.operator.discard({ ids: [cause!] }, by);
    for (let n = 0; n < 3; n++) await second.settle(await second.claim(), returned); // all is done that a claim does for the follower
    await elsewhere.leases.leave("second");
    const again = await relayOn(store, "first");
    expect(await again.drain()).toEqual(["order-1"]);
  });

  own("which is forgotten after five minutes, by a relay that has nothing to do too", async (harness, store, clock) => {
    const relay = await relayOn(store);
    await add(harness, "order-1", 50);
    await relay.drain();
    await raised(relay, harness, clock);
    await looks(clock, () => relay.drain()); // until no floor is left to move
    await harness.pool.query(broughtBack);
    expect(await relay.drain()).toEqual([]);
    clock.skip(300_000);
    expect(await relay.drain()).toEqual(["order-1"]);
  });

  test.each([false, true])("which stays where it is while published events are deleted (with a dead letter: %s)", async (dead) => {
    const harness = await cases.create();
    const clock = steppedClock();
    const relay = await relayOn(underClock(harness, clock, "delete"));
    await add(harness, "dead", 1);
    await relay.settle(await relay.claim(), dead ? parked : published);
    await looks(clock, async () => {
      await add(harness, "order-1", 10);
      await relay.drain();
    });
    await looks(clock, () => relay.drain()); // only the dead letter is left
    const [[first]] = (await harness.rows(
      "SELECT AUTO_INCREMENT - 40 FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND TABLE_NAME = 'outbox'",
    )) as [[number]];
    await harness.pool.query(
      `INSERT INTO outbox (seq, aggregate_type, aggregate_id, event_type, payload) VALUES (${first}, 'Order', 'order-1', 'E', '{}')`,
    );
    expect(await relay.drain()).toEqual([]);
    await harness.close();
  });

  own("which is forgotten for good when the numbers begin anew", async (harness, store, clock) => {
    const relay = await relayOn(store);
    await add(harness, "order-1", 50);
    await relay.drain();
    await raised(relay, harness, clock);
    await harness.pool.query("TRUNCATE TABLE outbox");
    await add(harness, "anew", 1);
    clock.skip(300_000);
    expect(await relay.drain()).toEqual(["anew"]);
    await add(harness, "anew", 1);
    expect(await relay.drain()).toEqual(["anew"]);
  });

  test.each([1, 3])(
    "and it moves with %d busy relays, though the list of transactions is renewed only while nobody reads it",
    async (count) => {
      const harness = await cases.create();
      const relays = await Promise.all(
        Array.from({ length: count }, (_, n) =>
          relayOn(
            mysql({ pool: harness.pool }),
            `r${n}`,
            all.filter((lane) => lane % count === n),
          ),
        ),
      );
      await add(harness, "first", 50);
      const [[first]] = (await harness.rows("SELECT MIN(seq) FROM outbox")) as [[number]];
      /** All are busy for a while; then, whether a scan still comes to the first row. */
      const reached = async (): Promise<boolean> => {
        const end = Date.now() + 3_000;
        const work = async (each: Relay): Promise<void> => {
          for (; Date.now() < end; await sleep(20)) await each.drain();
        };
        const write = async (): Promise<void> => {
          for (let n = 0; Date.now() < end - 500; await sleep(30)) await add(harness, `order-${n++}`, 5);
        };
        await Promise.all([...relays.map(work), write()]);
        await harness.pool.query(`UPDATE outbox SET status = 'PENDING' WHERE seq = ${first}`);
        return (await Promise.all(relays.map((each) => each.drain()))).flat().includes("first");
      };
      await expect.poll(reached, { timeout: 90_000 }).toBe(false);
      await harness.close();
    },
  );
});

type SteppedClock = ReturnType<typeof fastClock>;

/** Time that stands still but for the steps it is given: how many looks a test makes does not depend on the machine. */
const steppedClock = (): SteppedClock => fastClock(0);

/** A row that is brought back by hand, past everything that could tell, shows where the scan begins. */
const broughtBack = "UPDATE outbox SET status = 'PENDING' WHERE aggregate_id = 'order-1' ORDER BY seq LIMIT 1";

/**
 * So many claims, each with one look at the open transactions: a floor needs five. A step is as long as a relay ever waits
 * for its next look, and the steps of two calls stay below the five minutes after which floors are forgotten.
 */
async function looks(clock: SteppedClock, claim: () => Promise<unknown>): Promise<void> {
  for (let round = 0; round < 9; round++) {
    clock.skip(16_000);
    await sleep(120); // the server renews its list after a tenth of a second without a reader
    await claim();
  }
}

/** Claims until everything that was added so far is proven to be decided. */
async function raised(relay: Relay, harness: MysqlHarness, clock: SteppedClock): Promise<void> {
  await looks(clock, async () => {
    await add(harness, "mark", 1); // so that each claim takes a connection of the pool: floors start at 0 with a new one
    await relay.drain();
  });
}
