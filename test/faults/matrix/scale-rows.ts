import { aggregateName, aggregatesOf } from "../../../src/proof/run/workload.ts";
import { insert, made } from "./backlog.ts";
import { areBlocked, block, followers, keysOf, latencyOf, playCalm } from "./blocked.ts";
import { processPairs, storePairs } from "./pairs.ts";
import type { Row } from "./row.ts";

const perTransaction = 500;

const load = { aggregates: 8, hot: 0.25, pauseMs: 12, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.002 };
const backlog = 8_000;
/** As they are unless configured: a window of many events of one aggregate takes its time. */
const usual = { leaseMs: 10_000, publishTimeoutMs: 5_000 };
const thousands = (of: number): string => of.toLocaleString("en");

export const scaleRows: readonly Row[] = [
  {
    number: 36,
    title: "payloads that are hard to carry",
    injected:
      "empty, NUL, half a character, 4-byte UTF-8, 2^53+1, raw bytes, __proto__, and as large as allowed: every event is one of them",
    pairs: processPairs,
    prepare: () => ({ load: { ...load, hard: 1, large: 0.01 } }),
    async inject(stage) {
      await stage.rest();
      stage.once();
    },
  },
  {
    number: 37,
    title: "a backlog",
    injected: `${backlog} events are waiting when the relays start, scaled down from a million; then one relay is killed`,
    pairs: storePairs,
    prepare: () => ({
      restMs: 180_000,
      // What waits in the backlog is late by itself.
      bounds: { latencyMs: 150_000, recoveryMs: 12_000 },
      relay: { batch: 500, ...usual },
      limits: { rssMiB: 500 },
    }),
    async before(stage) {
      for (const aggregate of aggregatesOf(stage.place, load))
        for (let from = 0; from < backlog / 16; from += perTransaction)
          await insert(stage, `backlog-${aggregateName(aggregate)}-${from}`, made(stage, aggregate, perTransaction, from));
    },
    async inject(stage) {
      await stage.pause(1_500);
      const [victim] = stage.names("relay");
      const fault = stage.fault({ fault: "kill", target: victim!, copies: stage.window });
      stage.workers.kill(victim!);
      fault.ended();
      stage.once();
    },
  },
  {
    number: 38,
    title: "one aggregate has nearly all the events",
    injected: "nine of ten transactions change one aggregate; a relay and a subscriber are killed",
    pairs: processPairs,
    prepare: () => ({ load: { ...load, hot: 0.9 } }),
    async inject(stage) {
      for (const role of ["relay", "subscriber"] as const) {
        await stage.pause(2_500);
        const [victim] = stage.names(role);
        const fault = stage.fault({ fault: "kill", target: victim!, copies: role === "relay" ? stage.window : 0 });
        stage.workers.kill(victim!);
        fault.ended();
        stage.once();
      }
    },
  },
  {
    number: 39,
    title: "a hundred thousand blocked events of many aggregates",
    injected: `the first event of each of ${thousands(keysOf.postgres)} aggregates is DEAD, and ${followers} more of each are BLOCKED behind it (of ${thousands(keysOf.mariadb)} aggregates on MariaDB and SQLite), all of them before the load begins`,
    pairs: storePairs,
    prepare: () => ({ relay: { batch: 100, ...usual }, limits: { rssMiB: 500 }, restMs: 120_000 }),
    async before(stage) {
      await playCalm(stage);
      await block(stage);
    },
    async inject(stage) {
      const before = await areBlocked(stage);
      await stage.rest();
      if (before && (await areBlocked(stage))) stage.once();
      stage.note(`published with the blocked rows: ${latencyOf(stage, "writer-")}; without them: ${latencyOf(stage, "calm-writer-")}`);
    },
  },
];
