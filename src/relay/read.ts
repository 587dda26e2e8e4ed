import type { Claim } from "../contracts/outbox-store.ts";
import { WaybillError } from "../core/errors.ts";
import { follow } from "../core/time.ts";
import type { Feed } from "./feed.ts";
import type { LifeParts } from "./parts.ts";
import { graceMs } from "./send.ts";

interface Reading extends Pick<LifeParts, "clock" | "leaseMs"> {
  readonly feed: Pick<Feed, "payload">;
}

/** When nothing of a payload arrives for this many leases, that is its event's failure. The lease is renewed meanwhile. */
const readLeases = 3;

/**
 * Reads the payload that the claim left out; null when the relay is draining. The read has ended when this does: two payloads must not be
 * in memory, nor hold two connections.
 */
export async function readPayload({ feed, clock, leaseMs }: Reading, claim: Claim, draining: AbortSignal): Promise<Uint8Array | null> {
  const readTimeoutMs = readLeases * leaseMs;
  const ended = follow(draining);
  const reading = follow(ended.signal);
  let heardAt = clock.monotonic();
  let late = false;
  const giveUp = async (): Promise<null> => {
    for (let leftMs = readTimeoutMs; leftMs > 0; leftMs = heardAt + readTimeoutMs - clock.monotonic()) {
      await clock.sleep(leftMs, reading.signal);
      if (reading.signal.aborted) return null;
    }
    late = true;
    reading.abort();
    await clock.sleep(graceMs, ended.signal);
    return null;
  };
  try {
    const read = feed.payload(claim, reading.signal, () => (heardAt = clock.monotonic()));
    const data = await Promise.race([read, giveUp()]);
    if (data !== null || !late) return data;
  } catch (error) {
    if (!late && draining.aborted) return null;
    if (!late) throw error;
  } finally {
    ended.abort();
    for (const follower of [ended, reading]) follower.release();
  }
  throw new WaybillError("STORE_UNAVAILABLE", `the store did not answer within ${readTimeoutMs} ms`);
}
