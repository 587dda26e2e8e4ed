import { systemClock } from "../core/clock.ts";
import { never } from "../core/time.ts";
import { withLags, type KnownConsumer } from "../observe/known.ts";
import type { CommandBroker } from "./open.ts";

export interface Knowledge {
  readonly consumers: readonly KnownConsumer[];
  /** Whether a broker was given, and so asked. */
  readonly asked: boolean;
  /** The consumer and the topic that the command line names. */
  readonly named?: Pick<KnownConsumer, "consumer" | "topic"> | null;
}

/** How long a consumer has to get further, if the database does not know whether it runs. */
export const lookMs = 3_000;
const lookAgainMs = 500;

/** How far the broker says that these consumers are behind. One that the database knows nothing of is watched for a moment. */
export async function askKnown(known: readonly KnownConsumer[], broker: CommandBroker): Promise<readonly KnownConsumer[]> {
  const first = await withLags(known, broker.sink);
  const unsure = ({ running, messages }: KnownConsumer): boolean => running === null && (messages ?? 0) > 0;
  const until = systemClock.monotonic() + lookMs;
  let now = first;
  const moves = (each: KnownConsumer, at: number): boolean => unsure(each) && (now[at]!.messages ?? 0) < (first[at]!.messages ?? 0);
  const isMoving = first.map(() => false);
  while (first.some((each, at) => unsure(each) && !isMoving[at]) && systemClock.monotonic() < until) {
    await systemClock.sleep(lookAgainMs, never);
    now = await withLags(known, broker.sink);
    first.forEach((each, at) => (isMoving[at] ||= moves(each, at)));
  }
  return first.map((each, at) => (unsure(each) ? { ...now[at]!, running: isMoving[at] ? true : null } : each));
}
