import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { dirname, join } from "node:path";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { page } from "../../src/cli/verify/page.ts";
import { reportOf } from "../../src/cli/verify/report.ts";
import { remove, run, type RunResult } from "../../src/cli/verify/run.ts";
import { freshReader } from "../../src/cli/verify/reads.ts";
import { systemClock as clock } from "../../src/core/clock.ts";
import { seededRandom } from "../../src/core/random.ts";
import { built } from "./build.ts";

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
      ...{ place: direct, direct: () => direct, folder, clock, seed: 5, random: seededRandom(5) },
      program: join(dirname(await built()), "verify/worker.js"),
      crew: { writers: 1, relays: 2, subscribers: 1 },
      relay: {
        ...{ batch: 20, batchesInFlight: 2, leaseMs: 3_000, publishTimeoutMs: 1_500, pollIntervalMs: 30, housekeeping: false },
        probeMs: { first: 100, last: 500 },
      },
      seatMs: 3_000,
      load: { aggregates: 4, hot: 0.25, pauseMs: 12, sleepMs: 20, bytes: 40, hard: 0.3, large: 0 },
      read: freshReader(direct, new AbortController().signal),
      async nemesis(scene) {
        const { workers } = scene;
        // Not SIGSTOP: whoever stands still with the file locked keeps the writer from going on.
        for (const name of scene.names("relay")) await workers.drain(name, 10_000);
        const done = (): number => workers.all.filter(({ role }) => role === "writer").reduce((sum, one) => sum + one.done, 0);
        const before = done();
        while (done() < before + 20) await clock.sleep(50);
      },
      heal: () => undefined,
      restMs: 2_000,
      bounds: { latencyMs: 60_000, recoveryMs: 60_000 },
      canaries: ["canary-31c0", "swordfish-7"],
      said: () => [{ where: "the page of the report", text: "postgres://me:swordfish-7@db" }],
    });
    await remove(direct);
  }, 90_000);
  afterAll(() => rmSync(folder, { recursive: true, force: true }));

  test("is told as stuck, with what waited, although new processes have cured it since", () => {
    const stuck = result.judgement.verdicts.find(({ invariant }) => invariant === "nothing stuck");
    expect(stuck).toMatchObject({
      verdict: "broken",
      example: { text: expect.stringMatching(/not come to rest 2.*: \d+ PENDING/) as string },
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
