import { defineConfig } from "vitest/config";

const slow = ["test/faults/**/*.test.ts", "test/**/*.slow.test.ts"];
const servers = ["test/{stores,handles,housekeeping}/**/*.slow.test.ts"];

export default defineConfig({
  test: {
    reporters: ["default", "./test/support/tally.ts"],
    projects: [
      {
        test: {
          name: "fast",
          include: ["test/**/*.test.ts"],
          exclude: slow,
          testTimeout: 20_000,
          hookTimeout: 20_000,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // These start database servers of their own, and mind little how busy the machine is.
        test: {
          name: "servers",
          include: servers,
          testTimeout: 180_000,
          hookTimeout: 120_000,
          maxWorkers: 2,
          sequence: { groupOrder: 1 },
        },
      },
      {
        // These start, freeze and kill processes of their own: one file at a time, after the fast ones.
        test: {
          name: "slow",
          include: slow,
          exclude: servers,
          testTimeout: 180_000,
          hookTimeout: 60_000,
          maxWorkers: 1,
          sequence: { groupOrder: 2 },
        },
      },
    ],
  },
});
