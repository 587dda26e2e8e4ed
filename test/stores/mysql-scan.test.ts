import { describe, expect, test } from "vitest";
import { seededRandom } from "../../src/core/random.ts";
import { claimNormal, type Scan } from "../../src/stores/mysql/claim.ts";
import type { MysqlRow, Run } from "../../src/stores/mysql/connection.ts";
import { createFloors, type Floors, type LockedLane } from "../../src/stores/mysql/floors.ts";
import { createPace } from "../../src/stores/mysql/pace.ts";
import { namesOf } from "../../src/stores/mysql/names.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const names = namesOf(undefined);
const held = new Map([[7, 1n]]);
const row = (values: Readonly<Record<string, string | number | null>>): MysqlRow =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === null ? null : Buffer.from(String(value))]));

/** A server that shows what it is told to show at each look. */
function server(events: Readonly<Record<number, string>>, ...looks: readonly (readonly number[])[]) {
  const asked: string[] = [];
  const run = async (sql: string): Promise<readonly MysqlRow[]> => {
    asked.push(sql);
    const [, list] = /o\.seq IN \(([\d,]+)\)/.exec(sql) ?? [];
    if (list !== undefined)
      return list.split(",").map((seq) =>
        row({
          seq,
          lane: 1,
          aggregate_type: "T",
          aggregate_id: events[Number(seq)]!,
          retry_count: 0,
          cause_seq: null,
          free_to: null,
          waits: 0,
          deaths: null,
        }),
      );
    const [, last] = /o\.seq <= (\d+)/.exec(sql) ?? [];
    const shown = looks[asked.filter((each) => each.includes("FORCE INDEX (ready)")).length - 1] ?? looks.at(-1)!;
    return shown
      .filter((seq) => last === undefined || seq <= Number(last))
      .map((seq) => row({ lane: 1, seq, aggregate_type: null, aggregate_id: null }));
  };
  const scan: Scan = {
    session: { run, change: async () => 0, server: { mariadb: true, version: "11", recoversXa: true, unique: "u", at: "here", id: 1 } },
    names,
    bytes: Infinity,
    largest: Infinity,
    pace: createPace(),
    lanes: [1],
    limit: 10,
    open: new Map(),
    suspicious: false,
    floorOf: () => 0n,
  };
  return {
    asked,
    claim: async () => (await claimNormal(scan, { number: 0, probe: (look) => look() }, false)).found.map(({ seq }) => Number(seq)),
  };
}

describe("a snapshot that shows a commit and not the one before it", () => {
  test("does not part an aggregate's events: the second look shows the first one", async () => {
    const { claim } = server({ 5: "a", 6: "a" }, [6], [5, 6]);
    expect(await claim()).toEqual([5, 6]);
  });

  test("what the second look shows of other aggregates is left: what came before it may not be seen yet", async () => {
    const { claim } = server({ 3: "b", 5: "a", 6: "a", 7: "c" }, [6], [3, 5, 6, 7]);
    expect(await claim()).toEqual([5, 6]);
  });

  test("and of the same aggregate, what comes after what was picked", async () => {
    const { claim } = server({ 5: "a", 6: "b", 7: "a" }, [5, 7], [5, 6, 7]);
    expect(await claim()).toEqual([5, 7]);
  });
});

describe("a floor", () => {
  interface Listing {
    readonly oldest?: number;
    readonly newest?: number;
    readonly highest: number;
    readonly fresh?: boolean;
    readonly listed?: number;
    /** What the table will draw next. */
    readonly next?: number;
  }

  const show = (next: number): MysqlRow =>
    row({
      Table: "outbox",
      "Create Table": `CREATE TABLE \`outbox\` (\n  \`seq\` bigint AUTO_INCREMENT\n) ENGINE=InnoDB AUTO_INCREMENT=${next} DEFAULT CHARSET=utf8mb4`,
    });

  function bench(lane: LockedLane = { epoch: 1n, reopened: 0n }) {
    const clock = manualClock(0);
    const floors = createFloors(clock, seededRandom(7));
    const link = {};
    let locked = lane;
    const enter = (by: object = link, at = "s1"): void => floors.enter({ link: by, server: at, lanes: new Map([[7, locked]]) });
    const look = async (
      { oldest, newest, highest, fresh = true, listed = 1, next = highest + 1 }: Listing,
      lowest: bigint | null = null,
    ): Promise<void> => {
      await clock.advance(2_000);
      enter();
      const answer = row({ fresh: fresh ? 1 : 0, single: 1, listed, oldest: oldest ?? null, newest: newest ?? oldest ?? null, highest });
      await floors.look(async (sql) => [sql.startsWith("SHOW CREATE TABLE") ? show(next) : answer], names, "nonce");
      floors.raise(7, lowest);
    };
    const looks = async (times: number, listing: Listing, lowest: bigint | null = null): Promise<void> => {
      for (let n = 0; n < times; n++) await look(listing, lowest);
    };
    return { clock, floors, at: (epoch = 1n) => floors.of(7, epoch), enter, look, looks, lock: (next: LockedLane) => void (locked = next) };
  }

  test("moves to what was drawn, once everything that was open a while later is over", async () => {
    const { at, looks } = bench();
    await looks(1, { highest: 100 });
    expect(at()).toBe(0n);
    await looks(12, { highest: 100 });
    expect(at()).toBe(100n);
  });

  test("does not move at once: a number is drawn a moment before its transaction can be seen", async () => {
    const { at, looks } = bench();
    await looks(3, { highest: 100 }); // and nothing open
    expect(at()).toBe(0n);
    await looks(20, { highest: 100, oldest: 9 }); // here it is
    expect(at()).toBe(0n);
  });

  test("waits for a writer that stays open, and passes those that began later", async () => {
    const { at, looks } = bench();
    await looks(30, { highest: 100, oldest: 5, newest: 20 });
    expect(at()).toBe(0n);
    await looks(2, { highest: 500, oldest: 21, newest: 40 });
    expect(at()).toBe(100n);
  });

  test("is not proven by a list of transactions that was made for somebody else before", async () => {
    const { at, looks } = bench();
    await looks(50, { highest: 100, fresh: false });
    expect(at()).toBe(0n);
  });

  test("is not proven by a list that is so long that its end may be missing", async () => {
    const { at, looks } = bench();
    await looks(50, { highest: 100, listed: 2_001 });
    expect(at()).toBe(0n);
    await looks(40, { highest: 100, listed: 2_000 });
    expect(at()).toBe(100n);
  });

  test("never passes a row that is not settled", async () => {
    const { at, floors, looks } = bench();
    await looks(20, { highest: 100 }, 40n);
    expect(at()).toBe(39n);
    floors.lower(7, 12n);
    expect(at()).toBe(11n);
  });

  const doubts: [string, (floors: Floors, all: ReturnType<typeof bench>) => void | Promise<void>][] = [
    ["another owner", (_, { lock, enter }) => (lock({ epoch: 2n, reopened: 0n }), enter())],
    ["an operator who put rows back", (_, { lock, enter }) => (lock({ epoch: 1n, reopened: 1n }), enter())],
    ["another server", (_, { enter }) => enter({}, "s2")],
    ["a new connection, which may lead to a server that was restored", (_, { enter }) => enter({})],
    ["a new connection of a look that finds nothing", (floors) => floors.meet({})],
    ["numbers that begin anew", (_, { look }) => look({ highest: 3, next: 4 })],
    ["a claim that failed", (floors) => floors.reset()],
    ["time, for what somebody did by hand", async (_, { clock, enter }) => (await clock.advance(400_000), enter())],
  ];
  test.each(doubts)("goes back to 0 with %s", async (_, doubt) => {
    const all = bench();
    await all.looks(20, { highest: 100 });
    expect(all.at()).toBe(100n);
    await doubt(all.floors, all);
    expect(all.at()).toBe(0n);
  });

  test("stays where it is when the highest rows are deleted", async () => {
    const { at, looks } = bench();
    await looks(20, { highest: 100 });
    await looks(20, { highest: 3, next: 101 });
    expect(at()).toBe(100n);
  });

  test("is 0 for whoever holds the lane under another epoch, and a reason to claim", async () => {
    const { at, floors, looks } = bench();
    await looks(20, { highest: 100 });
    expect([at(1n), at(2n)]).toEqual([100n, 0n]);
    const current = (epoch: bigint, lane = 7): boolean => floors.current(new Map([[lane, epoch]]), 0n);
    expect([current(1n), current(2n), current(1n, 8)]).toEqual([true, false, false]);
  });

  test("is a reason to claim once it is old", async () => {
    const { floors, looks, clock } = bench();
    await looks(20, { highest: 100 });
    await clock.advance(300_000);
    expect(floors.current(new Map([[7, 1n]]), 0n)).toBe(false);
  });

  test.each([1, 3, 10, 30])(
    "moves for each of %d relays, though the list is renewed only when nobody has read it for a while",
    async (count) => {
      const clock = manualClock(0);
      const cache = { readAt: -Infinity, of: "" };
      const run: Run = async (sql) => {
        const [nonce] = /nonce-\d+-\d+-/.exec(sql)!;
        if (clock.monotonic() - cache.readAt > 100) cache.of = nonce;
        cache.readAt = clock.monotonic();
        return [row({ fresh: cache.of === nonce ? 1 : 0, single: 1, listed: 1, oldest: null, newest: null, highest: 100 })];
      };
      const relays = Array.from({ length: count }, (_, n) => createFloors(clock, seededRandom(n)));
      for (let step = 0; step < 24_000; step++) {
        await clock.advance(10);
        const floors = relays[step % count]!; // claims come all the time, from each in turn
        floors.enter({ link: cache, server: "s1", lanes: new Map([[7, { epoch: 1n, reopened: 0n }]]) });
        await floors.look(run, names, `nonce-${step % count}-${step}-`);
        floors.raise(7, null);
      }
      expect(relays.map((floors) => floors.of(7, 1n))).toEqual(relays.map(() => 100n));
    },
  );

  test("stays where it is while connections take turns", async () => {
    const { at, looks, enter } = bench();
    const other = {};
    enter(other);
    await looks(20, { highest: 100 });
    for (let n = 0; n < 5; n++) {
      enter(other);
      enter();
    }
    expect(at()).toBe(100n);
  });

  test("is not asked for where transactions may not be seen", async () => {
    const { floors, clock, enter } = bench();
    let asked = 0;
    const refuse = async (): Promise<never> => {
      asked++;
      throw Object.assign(new Error("Access denied; you need (at least one of) the PROCESS privilege(s)"), {
        errno: 1227,
        sqlState: "42000",
      });
    };
    for (let n = 0; n < 50; n++) {
      await clock.advance(1_000);
      enter();
      await floors.look(refuse, names, "nonce");
    }
    expect([asked, floors.of(7, 1n), floors.moving(held)]).toEqual([1, 0n, false]);
  });

  test("moves on while there is nothing to claim, until it has caught up", async () => {
    const { floors, looks, clock } = bench();
    await looks(1, { highest: 100 });
    expect(floors.moving(held), "not at once").toBe(false);
    await clock.advance(2_000);
    expect(floors.moving(held)).toBe(true);
    await looks(20, { highest: 100 });
    await clock.advance(2_000);
    expect(floors.moving(held)).toBe(false);
  });
});
