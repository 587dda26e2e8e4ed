import type { Action, Archive, EventRecord, PurgeOptions, WholeEvent } from "../../contracts/operator.ts";
import { asError, WaybillError } from "../../core/errors.ts";
import { finished } from "../../core/time.ts";
import { isUnreadable, type ReadPayload, type Stored, wholeOf } from "./records.ts";

/** The most that one call of the archive gets. */
export const archiveEvents = 500;
export const archiveBytes = 8 * 1024 * 1024;
export const archiveBounds = { bytes: archiveBytes, largest: Infinity };

/** Keys outlive their events. */
const keyRetentionMs = 7 * 24 * 3_600_000;

/** Where a batch ended, and whether another one may find more. */
interface Batch<Mark> {
  readonly mark: Mark;
  readonly more: boolean;
}

interface PurgedBatch<Mark> extends Batch<Mark> {
  readonly purged: number;
}

/** How one store purges. Each kind of event has its own timestamp to go by, and each batch begins at the mark of the one before. */
interface Purging<Kind, Mark> {
  readonly kinds: readonly Kind[];
  readonly begin: Mark;
  /** How many events may be deleted. */
  count(): Promise<number>;
  /** Deletes the next batch. */
  purge(kind: Kind, from: Mark): Promise<PurgedBatch<Mark>>;
  /** The next events, as many as an archive takes at once, without the kept ones. */
  next(kind: Kind, from: Mark, kept: readonly bigint[]): Promise<Batch<Mark> & { readonly stored: readonly Stored[] }>;
  readonly read: ReadPayload;
  /** Deletes the events that may still be deleted. Answers how many. */
  remove(kind: Kind, events: readonly WholeEvent[]): Promise<number>;
  audit(purged: number): Promise<void>;
  forgetKeys(retentionMs: number, from: Mark): Promise<Batch<Mark>>;
}

/** Deletes purgeable events in batches until none is left or the signal aborts. Answers how many. */
export async function purgeWith<Kind, Mark>(store: Purging<Kind, Mark>, { dryRun }: Action, options: PurgeOptions = {}): Promise<number> {
  if (dryRun) return store.count();
  const { archive, signal } = options;
  const kept = createKept(options);
  const inBatches = async (batch: (from: Mark) => Promise<Batch<Mark>>): Promise<void> => {
    let next: Batch<Mark> = { mark: store.begin, more: true };
    while (next.more && signal?.aborted !== true) {
      next = await batch(next.mark);
      if (next.more) await options.pause?.();
    }
  };
  let total = 0;
  try {
    for (const kind of store.kinds)
      await inBatches(async (from) => {
        const batch = await (archive === undefined ? store.purge(kind, from) : archiveSome(store, kind, from, archive, kept, signal));
        total += batch.purged;
        return batch;
      });
  } finally {
    if (total > 0) await store.audit(total);
  }
  await inBatches((from) => store.forgetKeys(options.keyRetentionMs ?? keyRetentionMs, from));
  kept.end();
  return total;
}

/**
 * An archive may take long, so no transaction is open meanwhile. An archived event is deleted only if it still may be. Two processes that
 * purge at the same time may both give the archive the same event.
 */
async function archiveSome<Kind, Mark>(
  store: Purging<Kind, Mark>,
  kind: Kind,
  from: Mark,
  archive: Archive,
  kept: Kept,
  signal: AbortSignal | undefined,
): Promise<PurgedBatch<Mark>> {
  const { stored, mark, more } = await store.next(kind, from, kept.seqs);
  const { events, dealt } = await archivable(stored, store.read, kept);
  const batch = dealt === stored.length ? { mark, more } : { mark: from, more: true };
  if (events.length === 0) return { purged: 0, ...batch };
  if (!(await finished(() => archive(events), signal))) return { purged: 0, mark: from, more: false };
  return { purged: await store.remove(kind, events), ...batch };
}

/** The events that one purge leaves where they are. */
interface Kept {
  readonly seqs: readonly bigint[];
  keep(event: EventRecord, why: string): void;
  /** Throws if events were kept and the caller gave no `kept` function. */
  end(): void;
}

function createKept({ kept }: PurgeOptions): Kept {
  const seqs: bigint[] = [];
  let first: string | undefined;
  return {
    seqs,
    keep(event, why) {
      seqs.push(event.seq);
      first ??= `${event.id} (${why})`;
      kept?.(event, why);
    },
    end() {
      if (first !== undefined && kept === undefined)
        throw new WaybillError("ROW_UNREADABLE", `${seqs.length} events were not archived and stay, the first is ${first}`);
    },
  };
}

/**
 * The first events with their payloads, for an archive. `dealt` says how many were looked at. An event whose payload can never be read is
 * kept. After any other failed read the event is kept too, and the batch ends there: if the store is gone, its next statement fails.
 */
async function archivable(
  stored: readonly Stored[],
  read: ReadPayload,
  kept: Kept,
): Promise<{ readonly events: readonly WholeEvent[]; readonly dealt: number }> {
  const events: WholeEvent[] = [];
  for (const [at, each] of stored.entries()) {
    try {
      events.push(await wholeOf(each, read));
    } catch (error) {
      kept.keep(each.record, asError(error).message);
      if (!isUnreadable(error)) return { events, dealt: at + 1 };
    }
  }
  return { events, dealt: stored.length };
}
