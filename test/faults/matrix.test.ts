import { afterAll, beforeAll, expect, test } from "vitest";
import { rmSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { built } from "../cli/build.ts";
import { describeWith } from "../servers/available.ts";
import type { Pair } from "./matrix/pairs.ts";
import type { Row } from "./matrix/row.ts";
import { rows } from "./matrix/rows.ts";
import { createServers, play, type Servers } from "./matrix/stage.ts";

/** A selection of the matrix, one or two for each store and broker; `npm run test:faults` has them all. */
const selection: readonly (readonly [row: number, pair: Pair])[] = [
  [9, { store: "postgres", broker: "redis" }],
  [5, { store: "postgres", broker: "redis" }],
  [10, { store: "mariadb", broker: "redis" }],
  [1, { store: "sqlite", broker: "nats" }],
];

await describeWith(["postgres", "mariadb", "nats", "redis"], "the fault matrix, some of it", () => {
  let servers: Servers;
  let program: string;
  beforeAll(async () => {
    servers = createServers();
    program = join(await built(), "../verify/worker.js");
  });
  afterAll(() => servers[Symbol.asyncDispose]());

  test.for(selection)("row %i on %o: every promise holds", async ([number, pair]) => {
    const row = rows.find((each) => each.number === number)!;
    const result = await play({ row, pair, servers, program, seed: 7, pace: number === 10 ? 1 : 0.5, keep: false });
    expect(result, JSON.stringify(result, null, 2)).toMatchObject({ held: true, failures: [] });
    expect(result.times).toBeGreaterThan(0);
    expect(result.counts?.events).toBeGreaterThan(50);
  });

  const common = { number: 99, title: "", injected: "", pairs: [] } as const;

  test("a run that is called off puts away what its row has made", async () => {
    const ending = new AbortController();
    let made = false;
    const row: Row = {
      ...common,
      prepare: () => {
        made = true;
        return { dispose: async () => void (made = false) };
      },
      async inject(stage) {
        ending.abort();
        await stage.clock.sleep(600_000);
      },
    };
    const pair: Pair = { store: "sqlite", broker: "embedded" };
    const result = await play({ row, pair, servers, program, seed: 7, pace: 1, keep: false, signal: ending.signal });
    expect(result).toMatchObject({ held: false, cannot: null });
    expect(made).toBe(false);
  });

  test("a run that misses one of its row's kinds, or in which nobody felt the fault, does not hold", async () => {
    const row: Row = {
      ...common,
      kinds: ["reached", "missed"],
      prepare: () => ({ forMs: 2_000 }),
      async inject(stage) {
        stage.once("reached");
      },
      felt: ({ history }) => (history.some(({ op }) => op === "add") ? "nobody felt it" : null),
    };
    const result = await play({ row, pair: { store: "sqlite", broker: "embedded" }, servers, program, seed: 7, pace: 1, keep: false });
    for (const note of result.notes) if (note.startsWith("histories: ")) rmSync(note.slice("histories: ".length), { recursive: true });
    expect(result).toMatchObject({ held: false, times: 1, kinds: { reached: 1, missed: 0 } });
    const ofTheRun = result.failures.filter(({ invariant }) => invariant === "run");
    expect(ofTheRun.map(({ why }) => why)).toEqual(["missed was never injected", "nobody felt it"]);
  });

  test("a run whose tables cannot be removed has failed", async () => {
    let client: pg.Client | null = null;
    const row: Row = {
      ...common,
      async inject(stage) {
        client = new pg.Client({ connectionString: stage.store.url });
        await client.connect();
        await client.query(`BEGIN; SELECT count(*) FROM ${stage.ground.tables.elsewhere}`);
        stage.once();
      },
    };
    const result = await play({ row, pair: selection[0]![1], servers, program, seed: 7, pace: 0.2, keep: false });
    await (client as pg.Client | null)?.end();
    for (const note of result.notes) if (note.startsWith("histories: ")) rmSync(note.slice("histories: ".length), { recursive: true });
    expect(result.failures.filter(({ invariant }) => invariant === "run")).toEqual([
      { invariant: "run", verdict: "failed", why: expect.stringMatching(/^something could not be removed: .*lock timeout/) as string },
    ]);
    expect(result.held).toBe(false);
  });
});
