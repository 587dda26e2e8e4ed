import type { Clock } from "../core/clock.ts";
import type { Observe } from "../core/path-events.ts";
import type { Random } from "../core/random.ts";
import { forgettingSeat } from "../core/seat.ts";
import type { Inbox } from "../contracts/inbox.ts";
import type { Source } from "../contracts/source.ts";
import type { SubscriberTroubles } from "./trouble.ts";

interface Forgetting {
  readonly consumer: string;
  readonly topics: readonly string[];
  readonly owner: string;
  readonly inbox: Pick<Inbox<never>, "forget" | "sit">;
  readonly source: Pick<Source, "oldest">;
  readonly retentionMs: number;
  readonly clock: Clock;
  readonly random: Random;
  readonly observe: Observe;
  readonly troubles: SubscriberTroubles;
}

const firstMs = 5 * 60_000;
const everyMs = 60 * 60_000;
const step = 1_000;
/** How far the clocks of a broker and a database may differ. */
const marginMs = 24 * 60 * 60_000;

/**
 * Deletes old marks and counts of attempts about every hour, in small steps. A mark stays while the broker may deliver its event again,
 * even past the retention: without the mark, the event would be applied a second time.
 */
export async function forgetOld(options: Forgetting, ended: AbortSignal): Promise<void> {
  const { inbox, consumer, owner, clock, random, observe, troubles } = options;
  for (let waitMs = firstMs; ; waitMs = everyMs) {
    await clock.sleep(waitMs * (0.5 + random.next()), ended);
    if (ended.aborted) return;
    try {
      // The seat is not left: until it expires, no other process begins a round.
      if (!(await inbox.sit({ consumer, topic: forgettingSeat, owner }, everyMs / 2))) continue;
      const { before, keptFor } = await limitOf(options, ended);
      let rows = 0;
      for (let gone = 1; gone > 0 && !ended.aborted; rows += gone) gone = await inbox.forget(before, step, consumer);
      observe({ type: "subscriber.forgot", consumer, rows, before: before.toISOString(), keptFor });
      troubles.over("forget");
    } catch (error) {
      if (ended.aborted) return;
      troubles.met("forget", error);
    }
  }
}

async function limitOf(
  { consumer, topics, source, retentionMs, clock }: Forgetting,
  ended: AbortSignal,
): Promise<{ readonly before: Date; readonly keptFor: string | null }> {
  let before = clock.now() - retentionMs;
  let keptFor: string | null = null;
  for (const topic of topics) {
    const oldest = (await source.oldest?.(topic, ended, consumer)) ?? null;
    if (oldest === null || oldest.getTime() - marginMs >= before) continue;
    before = oldest.getTime() - marginMs;
    keptFor = topic;
  }
  return { before: new Date(Math.max(0, before)), keptFor };
}
