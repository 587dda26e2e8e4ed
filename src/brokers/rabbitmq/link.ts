import type { Clock } from "../../core/clock.ts";
import { onAbort, orAborted, shared } from "../../core/time.ts";
import { closedHere, inTurn, notWaitedFor, oneConnection, type Shared } from "../kit/link.ts";
import { isUnread, outage, unreachable } from "../kit/outage.ts";
import { AmqpRefusal, dial, type Connection } from "./driver.ts";
import type { Settings } from "./url.ts";

/** When the server runs out of memory or disk, it stops reading from connections that publish. So consumers have one of their own. */
export interface Links {
  readonly shown: string;
  readonly publishing: Pick<Shared<Connection>, "open">;
  readonly consuming: Pick<Shared<Connection>, "open">;
  /** A connection for a single reader, which may pause it and must close it. */
  own(signal: AbortSignal): Promise<Connection>;
  /** Opens a connection that the first of the three above takes over. */
  connect(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

interface LinksOptions {
  readonly settings: Settings;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

export function createLinks({ settings, timeoutMs, clock }: LinksOptions): Links {
  const { shown, addresses } = settings;
  const closing = shared(new AbortController());
  const open = new Set<Connection>();
  const dialAny = inTurn(addresses, async (address) => {
    if (closing.signal.aborted) throw closedHere(shown);
    const connection = await dial({ settings, address, timeoutMs, clock }, closing.signal);
    if (closing.signal.aborted) {
      // It opened in the moment that it was called off.
      connection.end(closedHere(shown));
      throw notWaitedFor(shown);
    }
    open.add(connection);
    onAbort(connection.ended, () => open.delete(connection));
    return connection;
  });
  const spare = oneConnection(shown, dialAny);
  const take = async (): Promise<Connection> => {
    const dialled = await spare.handOver()?.catch(() => null);
    return dialled?.ended.aborted === false ? dialled : dialAny();
  };

  return {
    shown,
    publishing: oneConnection(shown, take),
    consuming: oneConnection(shown, take),
    own(signal) {
      const dialled = take();
      return orAborted(dialled, signal, () => {
        void dialled.then((late) => late.close()).catch(() => undefined);
        throw notWaitedFor(shown);
      });
    },
    async connect(signal) {
      if (open.size === 0) await spare.open(signal);
    },
    async close() {
      closing.abort();
      await Promise.all([...open].map((connection) => connection.close()));
    },
  };
}

/** Turns a refusal by the server into a Waybill error. The destination is to blame for all of them. */
export function explain(error: unknown, shown: string): Error {
  if (error instanceof AmqpRefusal) return outage(`${shown} refused: ${error.message}`, error);
  return isUnread(error) ? unreachable(shown, error) : (error as Error);
}
