import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { accessTo } from "../../src/cli/url.ts";
import { page } from "../../src/cli/verify/page.ts";
import { reportOf } from "../../src/cli/verify/report.ts";
import { openRunBroker, patient } from "../../src/proof/run/access.ts";
import { remove, run, type RunResult, type RunScene } from "../../src/proof/run/run.ts";
import { freshReader } from "../../src/proof/run/reads.ts";
import type { RunPlace } from "../../src/proof/run/task.ts";
import { systemClock as clock } from "../../src/core/clock.ts";
import { seededRandom } from "../../src/core/random.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres } from "../servers/postgres.ts";
import { built } from "./build.ts";

/** A small run between these, as far as it is always the same. */
async function optionsOf(folder: string, place: RunPlace) {
  return {
    ...{ access: accessTo(), place, direct: () => place, folder, clock, seed: 5, random: seededRandom(5) },
    program: join(dirname(await built()), "verify/worker.js"),
    crew: { writers: 1, relays: 2, subscribers: 1 },
    relay: {
      ...{ batch: 20, batchesInFlight: 2, leaseMs: 3_000, publishTimeoutMs: 1_500, pollIntervalMs: 30, housekeeping: false as const },
      probeMs: { first: 100, last: 500 },
    },
    seatMs: 3_000,
    load: { aggregates: 4, hot: 0.25, pauseMs: 12, sleepMs: 20, bytes: 40, hard: 0.3, large: 0 },
    read: freshReader(() => openRunBroker(accessTo(), place, patient), new AbortController().signal),
    heal: () => undefined,
    restMs: 2_000,
    bounds: { latencyMs: 60_000, recoveryMs: 60_000 },
  };
}

/** Until writers have done so many more. */
async function written({ workers }: RunScene, more: number): Promise<void> {
  const done = (): number => workers.all.filter(({ role }) => role === "writer").reduce((sum, one) => sum + one.done, 0);
  for (const before = done(); done() < before + more;) await clock.sleep(50);
}

/** Relays are gone and nobody starts them again, until new processes take their places. */
describe("a run in which nothing moves any more", () => {
  let folder: string;
  let result: RunResult;
  const about = { ...{ run: "r", seed: 1, minutes: 1, store: "s", broker: "b", startedAt: "now" }, notes: [], left: null };
  const place = (): { store: string; broker: string; run: string } => ({
    store: `sqlite:${join(folder, "a.db")}`,
    broker: `embedded:${join(folder, "b.db")}`,
    run: "verify_stuck",
  });

  beforeAll(async () => {
    folder = mkdtempSync(join(tmpdir(), "waybill-verify-run-"));
    const direct = place();
    result = await run({
      ...(await optionsOf(folder, direct)),
      async nemesis(scene) {
        // Not SIGSTOP: whoever stands still with the file locked keeps the writer from going on.
        for (const name of scene.names("relay")) await scene.workers.drain(name, 10_000);
        await written(scene, 20);
      },
      canaries: ["canary-31c0", "swordfish-7"],
      said: () => [{ where: "the page of the report", text: "postgres://me:swordfish-7@db" }],
    });
    await remove(accessTo(), direct);
  });
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("is told as stuck, with what waited, although new processes have cured it since", () => {
    const stuck = result.judgement.verdicts.find(({ invariant }) => invariant === "nothing stuck");
    expect(stuck).toMatchObject({
      verdict: "broken",
      example: { text: expect.stringMatching(/not come to rest \d.*: \d+ PENDING/) as string },
    });
    expect(result).toMatchObject({ rested: false, judgement: { held: false } });
    expect(result.counts.published, "the cure").toBe(result.counts.events);

    const report = reportOf(result, about);
    expect(report.held).toBe(false);
    const told = report.verdicts.find(({ invariant }) => invariant === "nothing stuck")!;
    expect(told).toMatchObject({ verdict: "broken", why: expect.stringContaining("still waited") as string });
    expect(told.story.length).toBeGreaterThan(0);
    expect(page(report)).toContain("Not every promise held");
    expect(page(report)).toContain("still waited");
  });

  test("looks for secrets in what is said of it too", () => {
    const secrets = result.judgement.verdicts.find(({ invariant }) => invariant === "no secrets");
    expect(secrets).toMatchObject({ verdict: "broken", example: { text: "secret 2 came out in the page of the report" } });
  });

  test("has no other fault", () => {
    const broken = result.judgement.verdicts.filter(({ verdict }) => verdict !== "holds").map(({ invariant }) => invariant);
    expect(broken).toEqual(["nothing stuck", "no secrets"]);
  });
});

await describeWith("postgres", "a run whose database goes away for good", () => {
  test("is judged: what cannot be read is unknown, and what could not be removed is told", async () => {
    await using server = await startPostgres({ version: 15 });
    const folder = mkdtempSync(join(tmpdir(), "waybill-verify-away-"));
    try {
      const place = { store: server.url(), broker: `embedded:${join(folder, "b.db")}`, run: "verify_away" };
      const result = await run({
        ...(await optionsOf(folder, place)),
        async nemesis(scene) {
          await written(scene, 20);
          await server.stop("immediate");
        },
        canaries: ["canary-31c0"],
      });
      const unknown = result.judgement.verdicts.filter(({ verdict }) => verdict === "unknown").map(({ invariant }) => invariant);
      expect(result.judgement.held).toBe(false);
      expect(unknown).toEqual(expect.arrayContaining(["no loss", "no phantom", "one effect", "conservation"]));
      // New processes begin, and wait for the store.
      expect(result.unread).toEqual([expect.stringMatching(/^The store could not be read: .*ECONNREFUSED/)]);
      expect(await remove(accessTo(), place)).toEqual([expect.stringContaining("ECONNREFUSED")]);
    } finally {
      rmSync(folder, { recursive: true, force: true });
    }
  });
});
