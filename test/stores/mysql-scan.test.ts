import { describe, expect, test } from "vitest";
import { claimNormal, type Scan } from "../../src/stores/mysql/claim.ts";
import type { MysqlRow } from "../../src/stores/mysql/connection.ts";
import { createFloors, type Floors, type LockedLane } from "../../src/stores/mysql/floors.ts";
import { namesOf } from "../../src/stores/mysql/names.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const names = namesOf(undefined);
const row = (values: Readonly<Record<string, unknown>>): MysqlRow =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, value === null ? null : Buffer.from(String(value))]));

/** A server that shows what it is told to show at each look. */
function server(events: Readonly<Record<number, string>>, ...looks: readonly (readonly number[])[]) {
  const asked: string[] = [];
  const run = async (sql: string): Promise<readonly MysqlRow[]> => {
    asked.push(sql);
    const [, list] = /o\.seq IN \(([\d,]+)\)/.exec(sql) ?? [];
    if (list !== undefined)
      return list
        .split(",")
        .map((seq) =>
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
    return shown.filter((seq) => last === undefined || seq <= Number(last)).map((seq) => row({ lane: 1, seq }));
  };
  const scan: Scan = {
    session: { run, change: async () => 0 },
    names,
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
  }

  function bench(lane: LockedLane = { epoch: 1n, reopened: 0n }) {
    const clock = manualClock(0);
    const floors = createFloors(clock);
    const link = {};
    let locked = lane;
    const enter = (by: object = link, at = "s1"): void => floors.enter({ link: by, server: at, lanes: new Map([[7, locked]]) });
    const look = async ({ oldest, newest, highest, fresh = true }: Listing, lowest: bigint | null = null): Promise<void> => {
      await clock.advance(200);
      enter();
      const answer = row({ fresh: fresh ? 1 : 0, single: 1, oldest: oldest ?? null, newest: newest ?? oldest ?? null, highest });
      await floors.look(async () => [answer], names, "nonce");
      floors.raise(7, lowest);
    };
    const looks = async (times: number, listing: Listing, lowest: bigint | null = null): Promise<void> => {
      for (let n = 0; n < times; n++) await look(listing, lowest);
    };
    return { clock, floors, enter, look, looks, lock: (next: LockedLane) => void (locked = next) };
  }

  test("moves to what was drawn, once everything that was open a while later is over", async () => {
    const { floors, looks } = bench();
    await looks(1, { highest: 100 });
    expect(floors.of(7)).toBe(0n);
    await looks(12, { highest: 100 });
    expect(floors.of(7)).toBe(100n);
  });

  test("does not move at once: a number is drawn a moment before its transaction can be seen", async () => {
    const { floors, looks } = bench();
    await looks(4, { highest: 100 }); // 0.8 s, and nothing open
    expect(floors.of(7)).toBe(0n);
    await looks(20, { highest: 100, oldest: 9 }); // here it is
    expect(floors.of(7)).toBe(0n);
  });

  test("waits for a writer that stays open, and passes those that began later", async () => {
    const { floors, looks } = bench();
    await looks(30, { highest: 100, oldest: 5, newest: 20 });
    expect(floors.of(7)).toBe(0n);
    await looks(2, { highest: 500, oldest: 21, newest: 40 });
    expect(floors.of(7)).toBe(100n);
  });

  test("is not proven by a list of transactions that was made for somebody else before", async () => {
    const { floors, looks } = bench();
    await looks(50, { highest: 100, fresh: false });
    expect(floors.of(7)).toBe(0n);
  });

  test("never passes a row that is not settled", async () => {
    const { floors, looks } = bench();
    await looks(20, { highest: 100 }, 40n);
    expect(floors.of(7)).toBe(39n);
    floors.lower(7, 12n);
    expect(floors.of(7)).toBe(11n);
  });

  const doubts: [string, (floors: Floors, bench: ReturnType<typeof bench>) => void | Promise<void>][] = [
    ["another owner", (_, { lock, enter }) => (lock({ epoch: 2n, reopened: 0n }), enter())],
    ["an operator who put rows back", (_, { lock, enter }) => (lock({ epoch: 1n, reopened: 1n }), enter())],
    ["another server", (_, { enter }) => enter({}, "s2")],
    ["a new connection, which may lead to a server that was restored", (_, { enter }) => enter({})],
    ["numbers that begin anew", (_, { look }) => look({ highest: 3 })],
    ["a claim that failed", (floors) => floors.reset()],
    ["time, for what somebody did by hand", async (_, { clock, enter }) => (await clock.advance(400_000), enter())],
  ];
  test.each(doubts)("goes back to 0 with %s", async (_, doubt) => {
    const all = bench();
    await all.looks(20, { highest: 100 });
    expect(all.floors.of(7)).toBe(100n);
    await doubt(all.floors, all);
    expect(all.floors.of(7)).toBe(0n);
  });

  test("stays where it is while connections take turns", async () => {
    const { floors, looks, enter } = bench();
    const other = {};
    enter(other);
    await looks(20, { highest: 100 });
    for (let n = 0; n < 5; n++) {
      enter(other);
      enter();
    }
    expect(floors.of(7)).toBe(100n);
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
    expect([asked, floors.of(7), floors.moving([7])]).toEqual([1, 0n, false]);
  });

  test("moves on while there is nothing to claim, until it has caught up", async () => {
    const { floors, looks, clock } = bench();
    await looks(1, { highest: 100 });
    await clock.advance(300);
    expect(floors.moving([7])).toBe(true);
    await looks(20, { highest: 100 });
    await clock.advance(300);
    expect(floors.moving([7])).toBe(false);
  });
});
