import { existsSync } from "node:fs";
import { defineConfig } from "vitest/config";
import { LongestFirst } from "./test/support/longest-first.ts";

const slow = ["test/faults/**/*.test.ts", "test/**/*.slow.test.ts"];
const long = ["test/**/*.long.test.ts"];
/** A condition that comes true is seen at once. Only one that never does takes the whole timeout. */
const patient = { poll: { timeout: 15_000 } };

/** The fast tests need no durability, so their files are in memory where /dev/shm exists. */
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
          // A worker loads the modules once for all its files: a third of the work. No test changes a module's state.
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
        // These start, freeze and kill their own servers and processes. After the fast tests, three files at a time: they mostly wait.
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
        // Faults of single brokers, partitioned suites and a million events. The fault matrix and the other suites cover them in part.
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
