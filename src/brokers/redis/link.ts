import type { Clock } from "../../core/clock.ts";
import type { WaybillError } from "../../core/errors.ts";
import { never, shared, withDeadline } from "../../core/time.ts";
import { asWord } from "../../core/text.ts";
import { closedHere, endingWith, oneConnection } from "../kit/link.ts";
import { outage } from "../kit/outage.ts";
import { ByteWriter } from "../kit/bytes.ts";
import { createSilence, type Silence } from "../kit/silence.ts";
import { connect, type Connection, type CommandsSent, type CommandsWritten } from "./driver.ts";
import { writeCommand, type RedisCommand } from "./protocol.ts";
import { RedisRefusal, type Reply } from "./replies.ts";
import type { ServerAddress } from "./url.ts";

export interface Link {
  /** The shared connection, for all but blocking reads. Dials again when it has been lost. */
  open(signal: AbortSignal): Promise<Connection>;
  /** A separate connection, which ends when the signal aborts. */
  dial(signal: AbortSignal): Promise<Connection>;
  /** Sends, and ends the connection when the server is silent for the timeout plus `extraMs`. */
  fly<T>(connection: Connection, flight: CommandsWritten<T>, extraMs?: number): CommandsSent<T>;
  /** The same, for commands whose answers are kept as they are. */
  send(connection: Connection, commands: readonly RedisCommand[], bounds?: AnswerBounds): CommandsSent<Reply | Error>;
  /** The same, but resolves with all replies. Rejects with the first error, in the server's own words. */
  ask(connection: Connection, commands: readonly RedisCommand[], bounds?: AnswerBounds): Promise<readonly Reply[]>;
  /** The largest string that the server takes; Infinity where the server does not say. */
  readonly serverMaxBytes: number;
  readonly shown: string;
  close(): void;
}

interface AnswerBounds {
  /** How much longer than usual the server may be silent. @default 0 */
  readonly extraMs?: number;
  /** How many bytes all answers may have. @default what answers have that hold no message */
  readonly most?: number;
}

/** The most bytes of answers that hold no message: numbers, ids, refusals, and what the server says of itself and of its groups. */
export const plainBytes = (commands: number): number => 4 * 1024 * 1024 + commands * 1_024;

interface LinkOptions {
  readonly place: ServerAddress;
  readonly clock: Clock;
  /** For connecting, and for every answer. */
  readonly timeoutMs: number;
}

export function createLink({ place, clock, timeoutMs }: LinkOptions): Link {
  const { shown } = place;
  const closing = shared(new AbortController());
  let serverMaxBytes = Infinity;

  const silences = new WeakMap<Connection, Silence>();
  const silenceOf = (connection: Connection): Silence => {
    let known = silences.get(connection);
    if (known !== undefined) return known;
    const silent = (ms: number): void => connection.end(outage(`${shown} did not answer within ${ms} ms`));
    known = createSilence({ clock, ms: timeoutMs, ended: connection.ended, heard: () => connection.heard, silent });
    silences.set(connection, known);
    return known;
  };
  const fly: Link["fly"] = (connection, flight, extraMs = 0) => {
    const sent = connection.send(flight);
    void sent.landed.then(silenceOf(connection).begin(extraMs));
    return sent;
  };
  const send: Link["send"] = (connection, commands, { extraMs, most = plainBytes(commands.length) } = {}) => {
    const writer = new ByteWriter(1_024);
    for (const command of commands) writeCommand(writer, command);
    return fly(connection, { bytes: writer.written(), count: commands.length, most, read: (answer) => answer }, extraMs);
  };
  const ask: Link["ask"] = async (connection, commands, bounds) => {
    const { answers, landed } = send(connection, commands, bounds);
    await landed;
    return answers.map((answer) => {
      if (answer instanceof Error) throw answer;
      return answer!;
    });
  };

  const dial = async (outer: AbortSignal): Promise<Connection> => {
    const connection = await endingWith(shown, [outer, closing.signal], (signal) =>
      // The client's own timeout covers neither a TLS handshake that hangs nor a name that is not resolved.
      withDeadline(
        clock,
        timeoutMs,
        signal,
        (late) => connect(place, timeoutMs, late),
        () => {
          throw signal.aborted ? closedHere(shown) : outage(`${shown} took no connection within ${timeoutMs} ms`);
        },
      ),
    );
    await greet(connection);
    return connection;
  };

  const greet = async (connection: Connection): Promise<void> => {
    const { username, password, database } = place;
    const who: RedisCommand[] = password === null ? [] : [["AUTH", ...(username === null ? [] : [username]), password]];
    const where: RedisCommand[] = database === 0 ? [] : [["SELECT", String(database)]];
    const { answers, landed } = send(connection, [...who, ...where, ["CONFIG", "GET", "proto-max-bulk-len"]]);
    await landed;
    try {
      const pair = answers.at(-1);
      // Some users may not ask for it, which is no failure. NOAUTH and DENIED are: the server refuses everything else too.
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
    fly,
    send,
    ask,
    dial,
    get serverMaxBytes() {
      return serverMaxBytes;
    },
    open: oneConnection(shown, () => dial(never)).open,
    close: () => closing.abort(),
  };
}

/** The server's refusals in Waybill's words. All of them blame the destination. */
export function explain(error: unknown, shown: string): Error {
  if (!(error instanceof RedisRefusal)) return error as Error;
  return outage(`${shown} refused: ${error.message}`, error);
}

/** The server's answer is neither a refusal nor what the command answers. */
export const wrong = (shown: string, command: string): WaybillError => outage(`${shown} answered ${command} as no Redis does`);

export const absent = (shown: string, topic: string, cause?: Error): WaybillError =>
  outage(
    `${shown} has no stream ${JSON.stringify(topic)}: provision it first (waybill migrate --broker ${shown} --topics ${asWord(topic)})`,
    cause,
  );
