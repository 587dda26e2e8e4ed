import type { Clock } from "../../core/clock.ts";
import { isWaybillError, WaybillError } from "../../core/errors.ts";
import { orAborted, shared } from "../../core/signal.ts";
import { AmqpRefusal, dial, type Connection } from "./driver.ts";
import type { Settings } from "./url.ts";

/** A connection that is opened when it is needed, and anew whenever it has been lost. */
export interface Link {
  open(signal: AbortSignal): Promise<Connection>;
}

/** The server stops reading from a connection that publishes when it runs out of memory or disk: consumers have one of their own. */
export interface Links {
  readonly shown: string;
  readonly publishing: Link;
  readonly consuming: Link;
  /** One for a single reader, who may pause it. Its end is for the reader to see to. */
  own(signal: AbortSignal): Promise<Connection>;
  /** Opens one that either of them takes over. */
  connect(signal: AbortSignal): Promise<void>;
  close(): Promise<void>;
}

export interface LinksOptions {
  readonly settings: Settings;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

export function createLinks({ settings, timeoutMs, clock }: LinksOptions): Links {
  const { shown, addresses } = settings;
  const closing = shared(new AbortController());
  const open = new Set<Connection>();
  let spare: Promise<Connection> | null = null;
  let turn = 0;

  /** There is no limit to dialling, and no waiting either: whoever was refused asks again in its own time. */
  const dialAny = async (): Promise<Connection> => {
    for (let tries = 1; ; tries++) {
      if (closing.signal.aborted) throw new WaybillError("STOPPED", `the connections to ${shown} were closed`);
      const address = addresses[turn % addresses.length]!;
      try {
        const connection = await dial({ settings, address, timeoutMs, clock }, closing.signal);
        open.add(connection);
        connection.ended.addEventListener("abort", () => open.delete(connection), { once: true });
        return connection;
      } catch (error) {
        if (isWaybillError(error, "DRIVER_MISSING") || tries >= addresses.length) throw error;
      } finally {
        turn += 1;
      }
    }
  };
  const take = async (): Promise<Connection> => {
    const dialled = spare;
    spare = null;
    const connection = await dialled?.catch(() => null);
    return connection?.ended.aborted === false ? connection : dialAny();
  };
  const called = (): never => {
    throw new WaybillError("DESTINATION_UNAVAILABLE", `connecting to ${shown} was called off`);
  };
  const createLink = (): Link & { readonly there: () => boolean } => {
    let current: Promise<Connection> | null = null;
    return {
      there: () => current !== null,
      open(signal) {
        if (current === null) {
          const opened = (current = take());
          const forget = (): void => {
            if (current === opened) current = null;
          };
          opened.then(({ ended }) => {
            if (ended.aborted) forget();
            else ended.addEventListener("abort", forget, { once: true });
          }, forget);
        }
        return orAborted(current, signal, called);
      },
    };
  };
  const [publishing, consuming] = [createLink(), createLink()];

  return {
    shown,
    publishing,
    consuming,
    own(signal) {
      const dialled = take();
      return orAborted(dialled, signal, () => {
        void dialled.then((late) => late.close()).catch(() => undefined);
        return called();
      });
    },
    async connect(signal) {
      if (publishing.there() || consuming.there() || open.size > 0) return;
      const dialled = (spare ??= dialAny());
      const forget = (): void => {
        if (spare === dialled) spare = null;
      };
      dialled.then(({ ended }) => ended.addEventListener("abort", forget, { once: true }), forget);
      await orAborted(dialled, signal, called);
    },
    async close() {
      closing.abort();
      await Promise.all([...open].map((connection) => connection.close()));
    },
  };
}

/** The server's refusals in Waybill's words; all of them are the destination's. */
export function explain(error: unknown, shown: string): Error {
  if (!(error instanceof AmqpRefusal)) return error as Error;
  return new WaybillError("DESTINATION_UNAVAILABLE", `${shown} refused: ${error.message}`, { cause: error });
}
