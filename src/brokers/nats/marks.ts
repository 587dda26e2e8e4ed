import type { Clock } from "../../core/clock.ts";

/** How far a reading has come. It is kept in the metadata of the reading's durable consumer, because a server forgets it (see consumers.ts). */
export interface ReadingMark {
  /** All messages up to this number are done. */
  readonly floor: number;
  /** The number of the last message taken. */
  readonly read: number;
  /** How many of the messages taken are not acknowledged. */
  readonly open: number;
  /** How many deliveries the server had made. */
  readonly deliveries: number;
}

const field = "waybill-mark";

/** The metadata that hold a mark. */
export const fields = ({ floor, read, open, deliveries }: ReadingMark): Readonly<Record<string, string>> => ({
  [field]: [floor, read, open, deliveries].join(" "),
});

/** Null where there is none: the server keeps no metadata. */
export function markOf(metadata: Readonly<Record<string, string>> | undefined): ReadingMark | null {
  const numbers = (metadata?.[field] ?? "").split(" ").map(Number);
  const [floor, read, open, deliveries] = numbers;
  if (numbers.length !== 4 || !numbers.every(Number.isSafeInteger)) return null;
  return { floor: floor!, read: read!, open: open!, deliveries: deliveries! };
}

interface MarkKeeperOptions {
  readonly clock: Clock;
  /** The reading's. */
  readonly signal: AbortSignal;
  readonly now: () => ReadingMark;
  readonly note: (mark: ReadingMark) => Promise<void>;
}

/** A cluster decides together about each change of a consumer, so it is not made often. */
const everyMs = 60_000;

/** Notes the mark every minute while messages come. The returned function notes the latest, and never rejects. */
export function keepMarks({ clock, signal, now, note }: MarkKeeperOptions): () => Promise<void> {
  let noted = fields(now())[field];
  let last = Promise.resolve();
  const latest = async (): Promise<void> => {
    const mark = now();
    const text = fields(mark)[field];
    if (text === noted) return;
    noted = text;
    // What is not noted makes the number of missed messages larger, up to its bound.
    await note(mark).catch(() => (noted = undefined));
  };
  /** One at a time: acknowledgements that come together after the end of a reading are noted together. */
  const keep = (): Promise<void> => (last = last.then(latest));
  void (async () => {
    while (!signal.aborted) {
      await clock.sleep(everyMs, signal, "idle");
      if (!signal.aborted) await keep();
    }
  })();
  return keep;
}
