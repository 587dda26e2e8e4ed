import type { Facts } from "./facts.ts";
import type { Entry } from "./history.ts";
import { trial, unknown, type Trial, type Verdict } from "./verdict.ts";

interface Take {
  readonly epoch: number;
  readonly owner: string;
  readonly at: number;
}
type Lanes = Map<number, Take[]>;
/** When it ends by the relay's own clock, and when it was last renewed. */
interface Lease {
  readonly until: number;
  readonly at: number;
}
type Of<Op extends Entry["op"]> = Extract<Entry, { op: Op }>;
type Taken = Extract<Of<"lease">, { what: "take" }>;

/**
 * F: a lane's epochs rise, and each has one owner. Nothing is settled under an epoch that is over. No relay sends when its own clock, at
 * its last look, said that its lease had expired. A fail-over may take the lanes back to an earlier time, so epochs are compared afresh.
 */
export function fencing({ history }: Facts): Verdict {
  const found = trial("fencing");
  const lanes: Lanes = new Map();
  const leases = new Map<string, Lease>();
  let failedOver = -Infinity;
  let taken = false;
  let worked = false;
  let unleased: string | null = null;
  for (const entry of history) {
    if (entry.op === "fault" && entry.fault === "failover") {
      lanes.clear();
      failedOver = entry.at;
    } else if (entry.op === "lease" && entry.phase === "ok") {
      taken ||= entry.what === "take";
      if (entry.what === "renew") leases.set(entry.process, { until: entry.mono + entry.ttlMs, at: entry.at });
      if (entry.what === "take") take(found, lanes, entry);
    } else if (entry.op === "settle" && entry.phase === "ok") {
      worked = true;
      settle(found, lanes, entry);
    } else if (entry.op === "publish" && entry.phase === "invoked") {
      worked = true;
      const lease = leases.get(entry.process);
      if (lease === undefined) unleased ??= entry.process;
      else publish(found, lanes, lease.until, lease.at <= failedOver, entry);
    }
  }
  if (worked && !taken) return unknown("fencing", "events were published or settled, and nobody recorded who took which lane");
  return found.verdict(unleased === null ? null : `${String(unleased)} published, and nobody recorded its lease`);
}

const firstOf = (events: readonly { readonly id: string }[]): string[] => events.slice(0, 5).map(({ id }) => id);

function take(found: Trial, lanes: Lanes, { process: owner, at, began, lanes: taken }: Taken): void {
  for (const [lane, epoch] of taken) {
    const takes = lanes.get(lane) ?? [];
    // The order of concurrent takes is unknown, but no two of them have the same epoch.
    const before = takes.findLast((one) => one.epoch === epoch || (one.epoch > epoch && one.at <= began));
    if (before !== undefined)
      found.broken(1, `${owner} took lane ${lane} under epoch ${epoch}, which ${before.owner} had under ${before.epoch} before`, []);
    lanes.set(lane, [...takes, { epoch, owner, at }]);
  }
}

function settle(found: Trial, lanes: Lanes, entry: Of<"settle">): void {
  // Only an epoch that was over before the settle began is certainly over. The store decides the rest.
  const stale = entry.outcomes.filter(({ lane, epoch }) =>
    (lanes.get(lane) ?? []).some((take) => take.epoch > epoch && take.at < entry.began),
  );
  const fresh = entry.outcomes.length - stale.length;
  if (entry.settled === undefined || entry.settled <= fresh) return;
  found.broken(
    stale.length,
    `${entry.process} settled ${entry.settled} events, and had only ${fresh} under an epoch that was not over`,
    firstOf(stale),
  );
}

function publish(found: Trial, lanes: Lanes, until: number, forgotten: boolean, { process, mono, began, at, events }: Of<"publish">): void {
  if (mono <= until && mono + at - began > until) found.pardon("frozen-before-the-send");
  if (mono > until)
    found.broken(
      events.length,
      `${process} published ${Math.round(mono - until)} ms after its lease had run out by its own clock`,
      firstOf(events),
    );
  const stale = events.filter(
    ({ lane, epoch }) => lane < 0 || (lanes.get(lane) ?? []).some((take) => take.epoch > epoch && take.at < began),
  );
  if (stale.length > 0 && forgotten && stale.every(({ lane }) => lane >= 0)) found.pardon("lease-forgotten-by-the-database");
  else if (stale.length > 0)
    found.broken(
      stale.length,
      `${process} published ${stale.length} events that it had not claimed, or under an epoch that was over`,
      firstOf(stale),
    );
}
