import { type Clock, systemClock } from "../../core/clock.ts";
import { within } from "../../core/time.ts";
import { createWake, type Wake } from "../../core/wake.ts";
import type { Connection } from "./connection.ts";

/** Hints between processes, and the end of them. */
interface Listening {
  readonly wake: Wake;
  close(): Promise<void>;
}

/** Anybody may notify here, from any language; a hint says no more than that there may be something to claim. */
const channel = "waybill";
const coalesceMs = 20;
const retryMs = 1_000;

/**
 * NOTIFY inside a producer's transaction takes a lock that all commits of the database share. Here a connection of
 * the pool sends it, once for all events of some milliseconds. It may come before a commit that Waybill does not see. LISTEN keeps one connection for as
 * long as a relay waits for hints; polling stays the truth, so a hint that is lost costs one poll interval.
 */
export function createListening(connection: Connection, clock: Clock = systemClock): Listening {
  const local = createWake();
  const closed = new AbortController();
  let sending: Promise<void> | null = null;
  let listening: Promise<void> | null = null;

  const send = async (): Promise<void> => {
    await clock.sleep(coalesceMs, closed.signal);
    sending = null;
    if (!closed.signal.aborted) await connection.run("SELECT pg_notify($1, '')", [channel]).catch(() => undefined);
  };

  const listenOnce = (): Promise<void> =>
    connection.borrow(async (client) => {
      const lost = new AbortController();
      const end = (): void => lost.abort();
      const hint = (): void => local.notify();
      client.on("notification", hint);
      client.on("error", end);
      client.on("end", end);
      closed.signal.addEventListener("abort", end);
      try {
        await client.query(`LISTEN ${channel}`);
        local.notify(); // what came before is found by looking
        await clock.sleep(Infinity, lost.signal);
        if (closed.signal.aborted) await within(clock, retryMs, client.query(`UNLISTEN ${channel}`));
      } finally {
        client.off("notification", hint);
        client.off("error", end);
        client.off("end", end);
        closed.signal.removeEventListener("abort", end);
      }
    });

  const listen = async (): Promise<void> => {
    while (!closed.signal.aborted) {
      await listenOnce().catch(() => undefined);
      await clock.sleep(retryMs, closed.signal);
    }
  };

  return {
    wake: {
      notify() {
        local.notify();
        sending ??= send();
      },
      wait(on, ms, signal) {
        listening ??= listen();
        return local.wait(on, ms, signal);
      },
    },
    async close() {
      closed.abort();
      await Promise.all([sending, listening]);
    },
  };
}
