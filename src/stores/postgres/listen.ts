import { type Clock, systemClock } from "../../core/clock.ts";
import { follow, onAbort, within } from "../../core/time.ts";
import { createWake, type Wake } from "../../core/wake.ts";
import { Late, type Connection } from "./connection.ts";

interface Listening {
  readonly wake: Wake;
  close(): Promise<void>;
}

/** Any program, in any language, may notify here. A hint only says that there may be something to claim. */
const channel = "waybill";
const coalesceMs = 20;
const retryMs = 1_000;

/**
 * Hints between processes. NOTIFY inside a producer's transaction takes a lock that all commits of the database share. So a pool connection
 * sends it instead: at once after the first commit, then once for all commits within some milliseconds. LISTEN keeps one connection while a
 * relay runs that waits for hints. Polling stays the truth, so a lost hint costs one poll interval.
 */
export function createListening(connection: Connection, clock: Clock = systemClock): Listening {
  const local = createWake();
  const closed = new AbortController();
  /** The relays that wait for hints, each by the signal that ends it. */
  const relays = new Set<AbortSignal>();
  let sending: Promise<void> | null = null;
  let listening: { readonly over: AbortController; readonly done: Promise<void> } | null = null;

  let sentAt = -Infinity;
  const send = async (): Promise<void> => {
    await clock.sleep(sentAt + coalesceMs - clock.monotonic(), closed.signal);
    sending = null;
    sentAt = clock.monotonic();
    if (!closed.signal.aborted) await connection.run("SELECT pg_notify($1, '')", [channel]).catch(() => undefined);
  };

  const listenUntil = (over: AbortSignal): Promise<void> =>
    connection.borrow(async (client) => {
      const lost = follow(over); // its own signal, to distinguish a lost connection from the end
      const hint = (): void => local.notify();
      client.on("notification", hint);
      client.on("error", lost.abort);
      client.on("end", lost.abort);
      try {
        await client.query(`LISTEN ${channel}`);
        local.notify(); // hints from before LISTEN were missed: look now
        await new Promise<void>((resolve) => onAbort(lost.signal, resolve));
        // A connection that does not answer is closed: its next borrower would wait behind the UNLISTEN.
        if (over.aborted && (await within(clock, retryMs, client.query(`UNLISTEN ${channel}`))) === null) throw new Late(connection.place);
      } finally {
        client.off("notification", hint);
        client.off("error", lost.abort);
        client.off("end", lost.abort);
        lost.release();
      }
    });

  const listen = async (over: AbortSignal): Promise<void> => {
    while (!over.aborted) {
      await listenUntil(over).catch(() => undefined);
      await clock.sleep(retryMs, over);
    }
  };
  const begin = (): void => {
    const over = new AbortController();
    listening = { over, done: listen(over.signal) };
  };
  const end = async (): Promise<void> => {
    const ending = listening;
    listening = null;
    ending?.over.abort();
    await ending?.done;
  };

  return {
    wake: {
      notify() {
        local.notify();
        sending ??= send();
      },
      wait(on, ms, signal) {
        if (!relays.has(signal) && !signal.aborted && !closed.signal.aborted) {
          relays.add(signal);
          if (listening === null) begin();
          onAbort(signal, () => {
            relays.delete(signal);
            if (relays.size === 0) void end();
          });
        }
        return local.wait(on, ms, signal);
      },
    },
    async close() {
      closed.abort();
      await Promise.all([sending, end()]);
    },
  };
}
