import type { Facts } from "./facts.ts";
import type { Entry } from "./history.ts";
import { trial, unknown, type Trial, type Verdict } from "./verdict.ts";

interface Take {
  readonly epoch: number;
  readonly owner: string;
  readonly at: number;
  /** The one who had the lane had not renewed since a fail-over, which may have forgotten its lease. */
  readonly forgotten: boolean;
}
type Lanes = Map<number, Take[]>;
/** When it ends by the relay's own clock, and when it was last renewed. */
interface Lease {
  readonly until: number;
  readonly at: number;
  /** The renewal before. */
  readonly before: number;
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
      if (entry.what === "renew")
        leases.set(entry.process, { until: entry.mono + entry.ttlMs, at: entry.at, before: leases.get(entry.process)?.at ?? -Infinity });
      if (entry.what === "take") take(found, lanes, entry, (owner) => (leases.get(owner)?.at ?? Infinity) <= failedOver);
    } else if (entry.op === "settle" && entry.phase === "ok") {
      worked = true;
      settle(found, lanes, entry);
    } else if (entry.op === "publish" && entry.phase === "invoked") {
      worked = true;
      const lease = leases.get(entry.process);
      if (lease === undefined) unleased ??= entry.process;
      else publish(found, lanes, lease, lease.at <= failedOver, entry);
    }
  }
  if (worked && !taken) return unknown("fencing", "events were published or settled, and nobody recorded who took which lane");
  return found.verdict(unleased === null ? null : `${String(unleased)} published, and nobody recorded its lease`);
}

const firstOf = (events: readonly { readonly id: string }[]): string[] => events.slice(0, 5).map(({ id }) => id);

function take(
  found: Trial,
  lanes: Lanes,
  { process: owner, at, began, lanes: taken }: Taken,
  isForgotten: (owner: string) => boolean,
): void {
  for (const [lane, epoch] of taken) {
    const takes = lanes.get(lane) ?? [];
    // The order of concurrent takes is unknown, but no two of them have the same epoch.
    const before = takes.findLast((one) => one.epoch === epoch || (one.epoch > epoch && one.at <= began));
    if (before !== undefined)
      found.broken(1, `${owner} took lane ${lane} under epoch ${epoch}, which ${before.owner} had under ${before.epoch} before`, []);
    const last = takes.at(-1);
    lanes.set(lane, [...takes, { epoch, owner, at, forgotten: last !== undefined && isForgotten(last.owner) }]);
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

function publish(found: Trial, lanes: Lanes, { until, before }: Lease, forgotten: boolean, entry: Of<"publish">): void {
  const { process, mono, began, at, events } = entry;
  if (mono <= until && mono + at - began > until) found.pardon("frozen-before-the-send");
  if (mono > until)
    found.broken(
      events.length,
      `${process} published ${Math.round(mono - until)} ms after its lease had run out by its own clock`,
      firstOf(events),
    );
  const over = ({ lane, epoch }: { readonly lane: number; readonly epoch: number }): Take | undefined =>
    lanes.get(lane)?.find((take) => take.epoch > epoch && take.at < began);
  const stale = events.filter((event) => event.lane < 0 || over(event) !== undefined);
  // It may have renewed once since the lane was taken from it: the look that follows tells it so.
  const excused = stale.every((event) => event.lane >= 0 && (forgotten || (over(event)!.forgotten && before <= over(event)!.at)));
  if (stale.length > 0 && excused) found.pardon("lease-forgotten-by-the-database");
  else if (stale.length > 0)
    found.broken(
      stale.length,
      `${process} published ${stale.length} events that it had not claimed, or under an epoch that was over`,
      firstOf(stale),
    );
}
