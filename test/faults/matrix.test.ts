import { afterAll, beforeAll, expect, test } from "vitest";
import { join } from "node:path";
import { built } from "../cli/build.ts";
import { describeWith } from "../servers/available.ts";
import type { Pair } from "./matrix/pairs.ts";
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
    const result = await play({ row, pair, servers, program, seed: 7, pace: 0.5, keep: false });
    expect(result, JSON.stringify(result, null, 2)).toMatchObject({ held: true, failures: [] });
    expect(result.times).toBeGreaterThan(0);
    expect(result.counts?.events).toBeGreaterThan(50);
  });
});
