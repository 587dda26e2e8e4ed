import type { Clock } from "../../core/clock.ts";
import { isWaybillError } from "../../core/errors.ts";
import { shared } from "../../core/time.ts";
import { closedHere, inTurn, oneConnection } from "../kit/link.ts";
import { unreachable } from "../kit/outage.ts";
import { dial, type Connection } from "./driver.ts";
import { placeOf, type Settings } from "./url.ts";

/** The connection that the sink and the source share. */
export interface Link {
  /** The broker's name in error messages. */
  readonly place: string;
  /** The server's limit for one message; none is known before the first connection. */
  readonly maxBytes: number;
  /** The connection, dialled when there is none. All waiting callers share one attempt. Rejects when no server can be reached. */
  open(signal: AbortSignal): Promise<Connection>;
  close(): Promise<void>;
}

interface LinkOptions {
  readonly settings: Settings;
  readonly connectTimeoutMs: number;
  readonly clock: Clock;
}

export function createLink({ settings, connectTimeoutMs: timeoutMs, clock }: LinkOptions): Link {
  const closing = shared(new AbortController());
  const place = placeOf(settings);
  let latest: Connection | null = null;
  const dialAny = inTurn(settings.addresses, async (address) => {
    if (closing.signal.aborted) throw closedHere(place);
    const connection = await dial({ settings, address, timeoutMs, clock }, closing.signal).catch((error: unknown) => {
      throw isWaybillError(error) ? error : unreachable(placeOf(settings, address), error);
    });
    if (closing.signal.aborted) await connection.close();
    return (latest = connection);
  });
  const { open, handOver } = oneConnection(place, dialAny);
  return {
    place,
    open,
    get maxBytes() {
      return latest?.maxBytes ?? Number.MAX_SAFE_INTEGER;
    },
    async close() {
      closing.abort();
      const connection = await handOver()?.catch(() => null);
      await connection?.close();
    },
  };
}
