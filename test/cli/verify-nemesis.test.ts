import { expect, test } from "vitest";
import { torment, type Nemesis } from "../../src/proof/run/nemesis.ts";
import type { PlannedFault, RunScene } from "../../src/proof/run/run.ts";
import { seededRandom } from "../../src/core/random.ts";

/** Everybody's sleeps take this much longer. */
async function faultsOf(lateMs: number, nemesis: Partial<Nemesis> = {}): Promise<readonly PlannedFault[]> {
  let now = 0;
  const faults: PlannedFault[] = [];
  const scene = {
    clock: { now: () => now, monotonic: () => now, sleep: async (ms: number) => void (now += ms + lateMs) },
    ...{ random: seededRandom(3), signal: new AbortController().signal, window: 10 },
    names: (role: string) => [`${role}-1`, `${role}-2`],
    workers: { kill: () => true, freeze: () => true, thaw: () => undefined },
    fault(fault: PlannedFault) {
      faults.push(fault);
      return { ended: () => undefined };
    },
  } as unknown as RunScene;
  const networks = { store: null, broker: null };
  await torment(scene, { networks, oneWriter: false, leaseMs: 3_000, forMs: 3_000, announce: () => undefined, ...nemesis });
  return faults;
}

test("a run has a fault, however late whoever causes it is", async () => {
  expect(await faultsOf(60_000)).toHaveLength(1);
});

test("whoever stands still may cost every relay its lease where one writer keeps all others out, and else only a relay does", async () => {
  const copiesOf = async (oneWriter: boolean): Promise<Record<string, number | null>> => {
    const faults = await faultsOf(0, { forMs: 60_000, oneWriter });
    return Object.fromEntries(faults.map(({ fault, target, copies }) => [`${fault} ${target.replace(/-.*/, "")}`, copies]));
  };
  const killed = { "kill relay": 10, "kill subscriber": 0, "kill writer": 0 };
  expect(await copiesOf(false)).toEqual({ ...killed, "freeze relay": 10, "freeze subscriber": 0, "freeze writer": 0 });
  expect(await copiesOf(true)).toEqual({ ...killed, "freeze relay": 20, "freeze subscriber": 20, "freeze writer": 20 });
});
