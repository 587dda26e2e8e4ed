import { existsSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/support/longest-first.ts";

const slow = ["test/faults/**/*.test.ts", "test/**/*.slow.test.ts"];
const long = ["test/**/*.long.test.ts"];
/** A condition that comes is seen at once; one that does not come may take its time to be told. */
const patient = { poll: { timeout: 15_000 } };

/** The fast tests ask for no durability, so their files need no disk where there is memory for files. */
const inMemory = existsSync("/dev/shm") ? { TMPDIR: "/dev/shm" } : {};

export default defineConfig({
  test: {
    reporters: ["default", "./test/support/tally.ts"],
    sequence: { sequencer: LongestFirst },
    projects: [
      {
        test: {
          name: "fast",
          setupFiles: ["test/support/no-leaks.ts"],
          // One loading of the modules for all files of a worker: a third of the work. No test changes a module's state.
          isolate: false,
          env: inMemory,
          include: ["test/**/*.test.ts"],
          exclude: [...slow, ...long],
          testTimeout: 60_000,
          hookTimeout: 60_000,
          expect: patient,
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // These start servers and processes of their own, and freeze and kill them: after the fast ones, and three files at a time: they wait more than they work.
        test: {
          name: "slow",
          include: slow,
          testTimeout: 300_000,
          hookTimeout: 300_000,
          expect: patient,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
      {
        // Faults of single brokers, partitioned suites and a million events, played in part by the fault matrix and the other suites.
        test: {
          name: "long",
          include: long,
          testTimeout: 300_000,
          hookTimeout: 300_000,
          expect: patient,
          maxWorkers: 2,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
