import { describe, expect, test } from "vitest";
import type { Holder, Watch } from "../../src/contracts/housekeeping.ts";
import { defaultThresholds, warningsOf } from "../../src/relay/housekeeping/warnings.ts";

const session: Holder = {
  ...{ kind: "session", name: "4711", user: "app", application: "billing", state: "idle in transaction", ageMs: 720_000, transactions: 50 },
};
const calm: Watch = { bytes: 8_192, deadRows: 0, horizon: null, writer: null, unseen: null };
const texts = (watch: Partial<Watch>): string[] => warningsOf({ ...calm, ...watch }, defaultThresholds).map(({ text }) => text);

describe("warnings", () => {
  test("there are none when all is well, or when nobody can tell", () => {
    expect(texts({})).toEqual([]);
    expect(texts({ bytes: "unknown", deadRows: "unknown", horizon: "unknown", writer: "unknown" })).toEqual([]);
    expect(texts({ writer: { ...session, ageMs: 59_000 }, horizon: { ...session, ageMs: 599_000 }, deadRows: 1_000_000 })).toEqual([]);
  });

  test("name who holds what back, and for how long", () => {
    expect(texts({ writer: session, horizon: session })).toEqual([
      "session 4711 (user app, application billing, state idle in transaction) has been open for 12m: until it ends, claims look at more and more rows",
      "session 4711 (user app, application billing, state idle in transaction) has been open for 12m: until it ends, rows that were deleted or replaced cannot be cleaned up",
    ]);
    const prepared: Holder = { ...session, kind: "prepared", name: "tx-1", application: "", state: "prepared", ageMs: 90_000_000 };
    expect(texts({ writer: prepared })[0]).toMatch(/^prepared transaction tx-1 \(user app, state prepared\) has been open for 1d: /);
  });

  test("an age that nobody may see is judged by the transactions since, and called so", () => {
    const unseen: Holder = { ...session, ageMs: "unknown", state: "unknown", transactions: 10_000 };
    expect(texts({ horizon: unseen })).toEqual([]);
    expect(texts({ horizon: { ...unseen, transactions: 10_001 } })[0]).toMatch(/state unknown\) has been open for 10001 transactions: /);
    expect(texts({ horizon: { ...unseen, transactions: "unknown" } })).toEqual([]);
    const slot: Holder = { ...unseen, kind: "slot", name: "standby", user: "", application: "", state: "inactive", transactions: 50_000 };
    expect(texts({ horizon: slot })[0]).toMatch(/^replication slot standby \(state inactive\) has not moved for 50000 transactions: /);
  });

  test("dead rows name the holder of the horizon, or ask for vacuum", () => {
    expect(texts({ deadRows: 1_000_001 })).toEqual(["the outbox has 1000001 dead rows: is vacuum keeping up?"]);
    expect(texts({ deadRows: 1_000_001, horizon: session })[1]).toBe(
      "the outbox has 1000001 dead rows: session 4711 keeps them from being cleaned up",
    );
  });

  test("a size is judged only where a limit is given", () => {
    expect(texts({ bytes: 1e15 })).toEqual([]);
    expect(warningsOf({ ...calm, bytes: 11 }, { ...defaultThresholds, bytes: 10 })).toEqual([
      { what: "bytes", holder: null, text: "the outbox has 11 bytes, more than 10" },
    ]);
  });
});
