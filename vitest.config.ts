import { defineConfig } from "vitest/config";

const slow = ["test/faults/**/*.test.ts", "test/**/*.slow.test.ts"];

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
          maxWorkers: 2,
          sequence: { groupOrder: 0 },
        },
      },
      {
        // These start servers and processes of their own, and freeze and kill them: after the fast ones, and three files at a time: they wait more than they work.
        test: {
          name: "slow",
          include: slow,
          testTimeout: 180_000,
          hookTimeout: 120_000,
          maxWorkers: 3,
          sequence: { groupOrder: 1 },
        },
      },
    ],
  },
});
