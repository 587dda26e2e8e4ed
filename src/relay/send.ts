import type { PublishResult } from "../contracts/sink.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { noFailpoints, type Failpoint } from "../core/failpoints.ts";
import { stepping } from "../core/progress.ts";
import { withDeadline } from "../core/time.ts";
import type { Parcel } from "./parcel.ts";
import type { LifeParts } from "./parts.ts";

type Sending = Pick<LifeParts, "sink" | "coordinator" | "clock" | "failpoints" | "publishTimeoutMs" | "steps">;

/** No publish begins when the lease is trusted for less than `publishTimeoutMs / leastShare`: called off, it may leave a copy. */
const leastShare = 4;
/** How long the relay waits for a sink, or for a store's read, that ignores its signal. */
export const graceMs = 1_000;

/** One call of the sink, with one deadline. Null when nothing was sent, since the lease leaves hardly any time. Never rejects. */
export async function send(options: Sending, flight: readonly Parcel[], stopping: AbortSignal): Promise<readonly PublishResult[] | null> {
  const { sink, clock, publishTimeoutMs } = options;
  const unknown = (why: string): readonly PublishResult[] => {
    const result: PublishResult = { status: "unknown", error: new WaybillError("PUBLISH_UNKNOWN", why) };
    return flight.map(() => result);
  };
  await hit(options, "before-publish", flight);
  const answers = await stepping(options.steps, publishTimeoutMs + 2 * graceMs, async () => {
    // The last look at the clock before the sink has the flight: a process that was frozen on the way here sees it.
    const trustedMs = options.coordinator.trustedForMs();
    if (trustedMs < publishTimeoutMs / leastShare) return null;
    const withinMs = Math.min(publishTimeoutMs, trustedMs);
    try {
      const late = (): readonly PublishResult[] =>
        unknown(stopping.aborted ? "the relay was stopped" : `no answer from ${sink.name} within ${Math.round(withinMs)} ms`);
      return await withDeadline(clock, withinMs, stopping, (signal) => sink.publish(flight, signal), late, graceMs);
    } catch (error) {
      return unknown(`${sink.name} failed: ${asError(error).message}`);
    }
  });
  if (answers !== null) await hit(options, "after-publish", flight);
  return answers;
}

async function hit({ failpoints }: Sending, at: Failpoint, flight: readonly Parcel[]): Promise<void> {
  if (failpoints === noFailpoints) return;
  const ids = flight.map(({ envelope }) => envelope.id);
  await failpoints.hit(at, ids);
}
