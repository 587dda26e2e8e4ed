import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import { oneConnection } from "../kit/one-connection.ts";
import { follow, shared } from "../../core/signal.ts";
import { connect, RedisRefusal, type Command, type Connection, type Flight, type Reply } from "./driver.ts";
import type { Place } from "./url.ts";

export interface Link {
  /** The connection that all but blocking reads share, opened anew whenever it has been lost. */
  open(signal: AbortSignal): Promise<Connection>;
  /** A connection of its own, which ends with the signal. */
  dial(signal: AbortSignal): Promise<Connection>;
  /** Sends on a connection that is given up when no answer comes for as long as one may take, and `extraMs` more. */
  send(connection: Connection, commands: readonly Command[], extraMs?: number): Flight;
  /** The same, for replies to all of them; rejects with the first error, in the server's own words. */
  ask(connection: Connection, commands: readonly Command[], extraMs?: number): Promise<readonly Reply[]>;
  /** The largest string that the server takes, where it tells. */
  readonly serverMaxBytes: number;
  readonly shown: string;
  close(): void;
}

export interface LinkOptions {
  readonly place: Place;
  readonly clock: Clock;
  /** For connecting, and for every answer. */
  readonly timeoutMs: number;
}

export function createLink({ place, clock, timeoutMs }: LinkOptions): Link {
  const { shown } = place;
  const closing = shared(new AbortController());
  let serverMaxBytes = Infinity;

  /** A slow server is not a silent one: as long as answers come, however late, the connection is kept. */
  const watch = async (connection: Connection, silentMs: number, landed: AbortSignal): Promise<void> => {
    for (let heard = -1; heard !== connection.heard;) {
      heard = connection.heard;
      await clock.sleep(silentMs, landed);
      if (landed.aborted) return;
    }
    connection.end(new WaybillError("DESTINATION_UNAVAILABLE", `${shown} did not answer within ${silentMs} ms`));
  };
  const send: Link["send"] = (connection, commands, extraMs = 0) => {
    const flight = connection.send(commands);
    const landed = new AbortController();
    void flight.landed.then(() => landed.abort());
    void watch(connection, timeoutMs + extraMs, landed.signal);
    return flight;
  };
  const ask: Link["ask"] = async (connection, commands, extraMs) => {
    const { answers, landed } = send(connection, commands, extraMs);
    await landed;
    return answers.map((answer) => {
      if (answer instanceof Error) throw answer;
      return answer!;
    });
  };

  const dial = async (outer: AbortSignal): Promise<Connection> => {
    if (closing.signal.aborted) throw closed(shown);
    const { signal, abort, release } = follow(outer, closing.signal);
    const late = new AbortController();
    // The client's own limit does not cover a TLS handshake that hangs, nor a name that is not resolved.
    void clock.sleep(timeoutMs, late.signal).then(() => {
      if (!late.signal.aborted) abort();
    });
    try {
      const connection = await connect(place, timeoutMs, signal);
      late.abort();
      const end = (): void => connection.end(closed(shown));
      for (const ending of [outer, closing.signal]) {
        if (ending.aborted) end();
        ending.addEventListener("abort", end, { once: true });
        connection.ended.addEventListener("abort", () => ending.removeEventListener("abort", end));
      }
      await greet(connection);
      return connection;
    } catch (error) {
      const timedOut = signal.aborted && !outer.aborted && !closing.signal.aborted;
      throw timedOut ? new WaybillError("DESTINATION_UNAVAILABLE", `${shown} took no connection within ${timeoutMs} ms`) : error;
    } finally {
      late.abort();
      release();
    }
  };

  const greet = async (connection: Connection): Promise<void> => {
    const { username, password, database } = place;
    const who: Command[] = password === null ? [] : [["AUTH", ...(username === null ? [] : [username]), password]];
    const where: Command[] = database === 0 ? [] : [["SELECT", String(database)]];
    const { answers, landed } = send(connection, [...who, ...where, ["CONFIG", "GET", "proto-max-bulk-len"]]);
    await landed;
    try {
      const pair = answers.at(-1);
      // Not everybody may ask for it. Without a password where one is needed, nothing else may be done either.
      const unasked = pair instanceof RedisRefusal && !["NOAUTH", "DENIED"].includes(pair.word);
      for (const answer of unasked ? answers.slice(0, -1) : answers) if (answer instanceof Error) throw answer;
      const bytes = Array.isArray(pair) ? Number(String(pair[1])) : NaN;
      serverMaxBytes = Number.isSafeInteger(bytes) && bytes > 0 ? bytes : Infinity;
    } catch (error) {
      const why = explain(error, shown);
      connection.end(why);
      throw why;
    }
  };

  return {
    shown,
    send,
    ask,
    dial,
    get serverMaxBytes() {
      return serverMaxBytes;
    },
    open: oneConnection(shown, () => dial(new AbortController().signal)),
    close: () => closing.abort(),
  };
}

const closed = (shown: string): WaybillError => new WaybillError("STOPPED", `the connection to ${shown} was closed`);

/** The server's refusals in Waybill's words; all of them are the destination's. */
export function explain(error: unknown, shown: string): Error {
  if (!(error instanceof RedisRefusal)) return error as Error;
  return new WaybillError("DESTINATION_UNAVAILABLE", `${shown} refused: ${error.message}`, { cause: error });
}

export const absent = (shown: string, topic: string, cause?: Error): WaybillError =>
  new WaybillError(
    "DESTINATION_UNAVAILABLE",
    `${shown} has no stream ${JSON.stringify(topic)}: provision it first (waybill migrate --broker ${shown} --topics ${topic})`,
    { cause },
  );
