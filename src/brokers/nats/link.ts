import type { Clock } from "../../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { orAborted } from "../../core/signal.ts";
import { dial, type Connection } from "./driver.ts";
import { placeOf, type Settings } from "./url.ts";

/** The connection that the sink and the source share. */
export interface Link {
  /** How messages call the broker. */
  readonly place: string;
  /** The server's limit for one message; none is known before the first connection. */
  readonly maxBytes: number;
  /** The connection; dialled when there is none. One attempt serves all who wait. Rejects when no server can be had. */
  get(signal: AbortSignal): Promise<Connection>;
  close(): Promise<void>;
}

export interface LinkOptions {
  readonly settings: Settings;
  readonly connectTimeoutMs: number;
  readonly clock: Clock;
}

/** There is no limit to dialling, and no waiting either: whoever was refused asks again in its own time. */
export function createLink({ settings, connectTimeoutMs, clock }: LinkOptions): Link {
  const closing = new AbortController();
  const place = placeOf(settings);
  let latest: Connection | null = null;
  let current: Promise<Connection> | null = null;
  let turn = 0;

  const dialAny = async (): Promise<Connection> => {
    const { addresses } = settings;
    for (let tries = 1; ; tries++) {
      const address = addresses[turn % addresses.length]!;
      try {
        const connection = await dial({ settings, address, timeoutMs: connectTimeoutMs, clock }, closing.signal);
        if (closing.signal.aborted) await connection.close();
        return (latest = connection);
      } catch (error) {
        if (isWaybillError(error)) throw error;
        turn += 1;
        if (tries >= addresses.length || closing.signal.aborted) throw unreachable(placeOf(settings, address), asError(error));
      }
    }
  };

  return {
    place,
    get maxBytes() {
      return latest?.maxBytes ?? Number.MAX_SAFE_INTEGER;
    },
    get(signal) {
      if (closing.signal.aborted) return Promise.reject(new WaybillError("DESTINATION_UNAVAILABLE", `${place} was closed here`));
      if (current === null) {
        const dialled = (current = dialAny());
        const forget = (): void => {
          if (current === dialled) current = null;
        };
        dialled.then(({ over }) => {
          if (over.aborted) forget();
          else over.addEventListener("abort", forget, { once: true });
        }, forget);
      }
      return orAborted(current, signal, () => {
        throw new WaybillError("DESTINATION_UNAVAILABLE", `connecting to ${place} was called off`);
      });
    },
    async close() {
      closing.abort();
      const connection = await current?.catch(() => null);
      await connection?.close();
    },
  };
}

function unreachable(place: string, cause: Error): WaybillError {
  const { code } = cause as { code?: unknown };
  const why = cause.message !== "" ? cause.message : typeof code === "string" ? code : cause.name;
  return new WaybillError("DESTINATION_UNAVAILABLE", `${place} cannot be reached: ${why}`, { cause });
}
