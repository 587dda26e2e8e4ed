import type { LogPosition } from "../../contracts/log-tailer.ts";
import type { Checkpoint, CheckpointReport, Handed, TailLedger, Tailing } from "../../contracts/tail-ledger.ts";
import { asError } from "../../core/errors.ts";
import type { Envelope } from "../../core/event.ts";
import { stepping } from "../../core/progress.ts";
import { orAborted } from "../../core/time.ts";
import type { FeedParts } from "../parts.ts";

/** Between two checkpoints, as long as there is something to keep. */
const everyMs = 1_000;
/** After this part of the window, a checkpoint is due at once: the floor follows two checkpoints behind. */
const partOfWindow = 8;
/** So long after it was published, an event's row says so, where an open transaction keeps the floor behind. */
const toldAfterMs = 5_000;
/** How long a relay that leaves waits for rows that cannot be seen yet. A relay that polls sends what was published of them again. */
const leaveMs = 2_000;
/** How many events one checkpoint writes. */
const mostWritten = 5_000;

/** An event that is to be the table's, and who waits for that. */
export interface HandedOver extends Handed {
  readonly resolve?: () => void;
}

export interface Checkpoints {
  enter(trouble: HandedOver): void;
  published(envelope: Envelope, xid: string): void;
  /** Events whose outcomes are not durable in the table: the next relay would send them again, or has not heard of their failure. */
  held(): number;
  /** The log's events up to this number are settled. */
  floor(): bigint;
  run(ending: AbortSignal): Promise<void>;
  /** The last ones. The next relay may read on where they end. */
  leave(): Promise<void>;
}

interface Hooks {
  readonly prefix: { position(): LogPosition };
  /** The size of the relay's window. */
  readonly most: number;
  /** The server may forget its log up to here. */
  confirm(position: LogPosition): void;
  /** This event is the table's now. */
  settled(trouble: HandedOver): void;
  /** There is room for further events. */
  moved(): void;
  lost(): void;
}

export function createCheckpoints(parts: FeedParts, ledger: TailLedger, tailing: Tailing, hooks: Hooks): Checkpoints {
  const { clock, stopping } = parts;
  /** In the order in which they came: a later event of an aggregate must not be in the table before an earlier one is. */
  let troubles: HandedOver[] = [];
  /** Published, above the floor, and not told in their rows. */
  let untold: (Checkpoint["published"][number] & { readonly at: number })[] = [];
  let since = 0;
  let lost = false;
  let floor = tailing.floor;
  let kept = tailing.from.position;
  let quiet = true;
  let hurry: () => void = () => undefined;
  let retryAt = -Infinity;

  const isOften = (): boolean => since >= hooks.most / partOfWindow;
  const isDue = (): boolean => isOften() || (clock.monotonic() >= retryAt && (troubles.length > 0 || isCrowded()));
  const isCrowded = (): boolean => untold.length > hooks.most / 2;
  const tells = (): boolean => untold[0] !== undefined && clock.monotonic() - untold[0].at > toldAfterMs;

  const write = async ({ tell, leaves }: { readonly tell: boolean; readonly leaves: boolean }): Promise<boolean> => {
    const position = hooks.prefix.position();
    const given = troubles.slice(0, mostWritten);
    const published = untold.slice(0, mostWritten);
    since = 0;
    const report = await attempt(
      () =>
        ledger.checkpoint(tailing, {
          position,
          handed: given,
          published,
          crowded: isCrowded(),
          tell,
          leaves,
        }),
      tell,
    );
    if (report === null) return false;
    if (!report.kept) {
      lost = true;
      hooks.lost();
      return false;
    }
    hooks.confirm((kept = position));
    floor = report.floor;
    const told = report.told ? published.length : 0;
    const before = untold.length;
    untold = untold.filter(({ seq }, at) => report.unseen.has(seq) || (at >= told && seq > report.floor));
    const rest = troubles.slice(given.length);
    const unseen = given.filter(({ claim }) => report.unseen.has(claim.envelope.seq));
    troubles = [...unseen, ...rest];
    if (unseen.length > 0 || untold.length === before) retryAt = clock.monotonic() + 20;
    for (const trouble of given) {
      if (report.unseen.has(trouble.claim.envelope.seq)) continue;
      hooks.settled(trouble);
      trouble.resolve?.();
    }
    quiet = untold.length === 0 && troubles.length === 0;
    if (untold.length < before) hooks.moved();
    return true;
  };
  const attempt = async (work: () => Promise<CheckpointReport>, leaves: boolean): Promise<CheckpointReport | null> => {
    for (let wait = 50; !stopping.aborted && !lost; wait = Math.min(wait * 2, 2_000)) {
      try {
        return await orAborted<CheckpointReport | null>(stepping(parts.steps, parts.leaseMs, work), stopping, () => null);
      } catch (error) {
        parts.onTrouble("settle", asError(error));
        await clock.sleep(wait, stopping);
        if (leaves && parts.coordinator.trustedForMs() <= 0) return null; // as after a crash
      }
    }
    return null;
  };

  const held = (): number => untold.length + troubles.length;

  return {
    enter(trouble) {
      troubles.push(trouble);
      hurry();
    },
    published({ seq, createdAt }, xid) {
      untold.push({ seq, createdAt, xid, at: clock.monotonic() });
      quiet = false;
      since += 1;
      if (isDue()) hurry();
    },
    held,
    floor: () => floor,
    async run(ending) {
      while (!ending.aborted && !lost) {
        if (!isDue()) {
          const ended = new AbortController();
          hurry = () => ended.abort();
          const leave = (): void => ended.abort();
          ending.addEventListener("abort", leave, { once: true });
          const wait = troubles.length > 0 || isCrowded() ? Math.max(1, retryAt - clock.monotonic()) : everyMs;
          await clock.sleep(wait, ended.signal);
          ending.removeEventListener("abort", leave);
          hurry = () => undefined;
          if (ending.aborted) break;
        }
        const position = hooks.prefix.position();
        if (!quiet || troubles.length > 0) await write({ tell: tells(), leaves: false });
        // Nothing of ours lies between: what is confirmed need not be written.
        else if (position !== kept) hooks.confirm((kept = position));
      }
    },
    async leave() {
      let until = clock.monotonic() + leaveMs;
      while (!lost && !stopping.aborted && parts.coordinator.trustedForMs() > 0) {
        const last = held() === 0 || clock.monotonic() > until;
        const before = held();
        if (!(await write({ tell: true, leaves: last })) || last) break;
        if (held() === before) await clock.sleep(20, stopping);
        else until = clock.monotonic() + leaveMs;
      }
      for (const { resolve } of troubles) resolve?.();
    },
  };
}
