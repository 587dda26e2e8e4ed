import type { Entrance, Tail } from "../../contracts/tail-ledger.ts";
import { LANES } from "../../core/lane.ts";
import type { LeaseStore } from "../../contracts/lease-store.ts";
import { follow } from "../../core/time.ts";
import type { FeedParts } from "../parts.ts";

/** How often a relay that polls asks whether it may read the log now. */
const askMs = 100;
/** After so long it looks what the log waits for: the first time, doubled up to the last. */
const lookMs = { first: 1_000, last: 60_000 };
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
  /** Says what the log waits for, more and more rarely: a transaction may stay open for hours. */
  const tellWait = async (signal: AbortSignal): Promise<void> => {
    for (let wait = lookMs.first; ; wait = Math.min(wait * 2, lookMs.last)) {
      await clock.sleep(wait, signal);
      if (signal.aborted) return;
      const look = await tailer.look().catch(() => null);
      if (look?.state === "preparing" && look.waitsFor !== null && !signal.aborted)
        poll(`the log is being prepared, and waits for ${look.waitsFor}`);
    }
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
    const waiting = follow(draining);
    void tellWait(waiting.signal);
    const place = await tailer.prepare(draining).finally(() => {
      waiting.abort();
      waiting.release();
    });
    const entrance = await ledger.entrance(place);
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
