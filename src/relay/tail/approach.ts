import type { Entrance, Tail } from "../../contracts/tail-ledger.ts";
import { LANES } from "../../core/lane.ts";
import type { LeaseStore } from "../../contracts/lease-store.ts";
import type { FeedParts } from "../parts.ts";

/** How often a relay that polls asks whether it may read the log now. */
const askMs = 100;
/** How often it looks whether it owns all lanes. */
const lanesMs = 500;
/** The same while it has just started. */
const soonMs = 10;

/**
 * Finds a place at which the log may be entered while the relay polls, and resolves once everything before it is settled. Null when the relay
 * drains. Rejects with a LogUnreadable.
 */
export async function approach(
  { clock, coordinator, draining }: FeedParts,
  { tailer, ledger }: Tail,
  leases: Pick<LeaseStore, "look">,
  /** Reading may begin where the last relay left it in order. */
  resumes: boolean,
  /** The relay polls from now on, and says why. Until then it does nothing: what the log brings needs no polling first. */
  poll: (why: string | null) => void,
): Promise<Entrance | null> {
  const ownsAll = (): boolean => coordinator.holding.lanes.size === LANES;
  const whileOwned = async (work: () => Promise<boolean>): Promise<boolean> => {
    while (!draining.aborted && ownsAll()) {
      if (await work()) return true;
      await clock.sleep(askMs, draining);
    }
    return false;
  };
  const patience = clock.monotonic() + lanesMs;
  while (!draining.aborted) {
    if (!ownsAll()) {
      if (coordinator.settledIn()) poll(await keptBy(leases, coordinator.holding.relay));
      else if (clock.monotonic() > patience) poll(null);
      await clock.sleep(clock.monotonic() > patience ? lanesMs : soonMs, draining);
      continue;
    }
    const left = resumes ? await ledger.entrance() : null;
    if (left !== null && (await tailer.look()).state !== "missing") return left;
    poll("the log is being prepared");
    const entrance = await ledger.entrance(await tailer.prepare(draining));
    if (entrance !== null && (await whileOwned(() => ledger.isSettled(entrance)))) return entrance;
  }
  return null;
}

/** Why this relay polls: who has the other lanes. */
async function keptBy(leases: Pick<LeaseStore, "look">, me: string): Promise<string> {
  const { lanes } = await leases.look();
  const others = lanes.filter(({ owner }) => owner !== me);
  const owners = [...new Set(others.map(({ owner }) => owner ?? "nobody"))];
  return `${others.length} of the ${lanes.length} lanes are kept by ${owners.join(", ")}, and only a relay that has all lanes reads the log`;
}
