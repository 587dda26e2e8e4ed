import { rmSync } from "node:fs";
import { dirname } from "node:path";
import { expect, test } from "vitest";
import { describeWith } from "../servers/available.ts";
import { faultNames } from "./plan.ts";
import { play, type Played } from "./play.ts";

/** How relays read the outbox. */
const modes = ["tail", "poll", "auto"];

await describeWith("postgres", "relays change, die, freeze and come back, and the database crashes", () => {
  test("no event is lost, made up, changed or out of order; copies have a cause, and no more than a window each", async () => {
    const all: Played[] = [];
    const held = await play({
      ...{ seed: Number(process.env["WAYBILL_SEED"] ?? 1), modes, faults: faultNames, seconds: 13, rate: 800 },
      ...{ version: 15, coordination: "leader" },
      more: (played) => all.push(played) < 3,
    });
    expect(all.flatMap(({ findings, story, folder }) => (findings.length === 0 ? [] : [...story, folder]))).toEqual([]);
    expect(held).toBe(true);
    expect(all.reduce((sum, { events }) => sum + events, 0)).toBeGreaterThan(2_000);
  }, 300_000);

  test.each(["drop", "double", "swap", "phantom", "change"] as const)("a relay that does this once is found out: %s", async (name) => {
    const found = { drop: "lost", double: "copy", swap: "order", phantom: "phantom", change: "changed" } as const;
    const all: Played[] = [];
    const held = await play({
      ...{ seed: 1, modes: ["poll"], faults: [], seconds: 4, rate: 500, version: 15, coordination: "leader" },
      bug: { name, after: 300 },
      more: (played) => all.push(played) < 1,
    });
    rmSync(dirname(all[0]!.folder), { recursive: true, force: true });
    expect(held).toBe(false);
    expect(all[0]!.findings.map(({ wrong }) => wrong)).toContain(found[name]);
  });
});
