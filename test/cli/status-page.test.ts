import { expect, test } from "vitest";
import { page } from "../../src/cli/commands/status.ts";
import { createOutput } from "../../src/cli/output.ts";
import type { Status } from "../../src/contracts/operator.ts";

const status: Status = {
  states: { PENDING: 1, PUBLISHING: 2, PUBLISHED: 20_012_345, FAILED: 0, BLOCKED: 134_500, DEAD: 0, DISCARDED: 0 },
  estimated: ["PUBLISHED", "BLOCKED"],
  oldestUnpublishedMs: null,
  oldest: { claimableMs: null, blockedMs: null, deadMs: null, types: [] },
  relays: [],
  lanes: { total: 64, owned: 0, free: 64 },
  holds: { aggregates: 3, blocked: 134_500, list: [] },
  breakers: [],
  window: { events: 0, suspects: 0 },
  dead: [],
  schemaVersion: 2,
};

test("status says in words which counts are estimates", () => {
  const text = page(createOutput({ write: () => true, colour: false }, false), status, []).join("\n");
  expect(text).toMatch(/PUBLISHED +about 20,000,000/);
  expect(text).toMatch(/3 aggregates, about 135,000 blocked events/);
  expect(text).toMatch(/PENDING +1$/m);
});
