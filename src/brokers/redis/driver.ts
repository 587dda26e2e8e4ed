import type { Socket } from "node:net";
import type { Redis } from "ioredis";
import { asError, WaybillError } from "../../core/errors.ts";
import { createAwaited } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import { onAbort, shared } from "../../core/time.ts";
import { notWaitedFor } from "../kit/link.ts";
import { outage, unreachable } from "../kit/outage.ts";
import { ReplyReader, WrongAnswer, type RedisRefusal, type Reply } from "./replies.ts";
import type { ServerAddress } from "./url.ts";

/** Commands in the protocol's own bytes. */
export interface CommandsWritten<T> {
  readonly bytes: Uint8Array;
  readonly count: number;
  /** How many bytes all answers may have. The connection ends with the first byte beyond. */
  readonly most: number;
  /** Turns an answer into what is kept of it. The answer is a reply, a RedisRefusal, or why the connection ended without either. */
  read(answer: Reply | Error, place: number): T;
}

/** Commands that were written at once. */
export interface CommandsSent<T> {
  /** By place; undefined until the answer has come. */
  readonly answers: readonly (T | undefined)[];
  /** Resolves when all answers are there; never rejects. */
  readonly landed: Promise<void>;
}

/** One connection. It never reconnects, and never sends anything twice. */
export interface Connection {
  send<T>(flight: CommandsWritten<T>): CommandsSent<T>;
  /** How many bytes have arrived so far. A large answer takes long, and this number shows that it is still coming. */
  readonly heard: number;
  end(why: Error): void;
  /** Its abort reason says why. */
  readonly ended: AbortSignal;
}

/** Connects, and sends nothing yet: the caller's first commands authenticate and select the database. */
export async function connect({ host, port, tls, shown }: ServerAddress, timeoutMs: number, signal: AbortSignal): Promise<Connection> {
  const { Redis: Client } = await loadClient("Redis", "ioredis", () => import("ioredis"));
  if (typeof (Client as unknown) !== "function") throw unfit("is 4 or before");
  const client = new Client({
    host,
    port,
    ...(tls === null ? {} : { tls: { ...tls, rejectUnauthorized: true, minVersion: "TLSv1.2" } }),
    lazyConnect: true,
    connectTimeout: timeoutMs,
    disconnectTimeout: 10,
    keepAlive: 10_000,
    // No reconnect: when the connection is lost, commands under way are rejected at once, and none is queued to be sent again.
    retryStrategy: () => null,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // The client's handshake continues when SELECT or AUTH fails, and prints to the console. Ours does not.
    enableReadyCheck: false,
    disableClientInfo: true,
    ...{ protocol: 2 }, // from version 6 on, the client would send HELLO before we have authenticated
  });
  const ended = shared(new AbortController());
  let failure: Error | null = null;
  const end = (why: Error): void => {
    if (ended.signal.aborted) return;
    ended.abort(why);
    client.disconnect();
  };
  const lost = (): Error => unreachable(shown, failure ?? new Error("the connection was closed"));
  client.on("error", (error: Error) => void (failure ??= error));
  client.on("end", () => end(lost()));
  const leave = onAbort(signal, () => end(notWaitedFor(shown)));
  if (!ended.signal.aborted) await client.connect().catch(() => end(lost()));
  leave();
  ended.signal.throwIfAborted();
  const stream = streamOf(client);
  const awaited = createAwaited(stream);
  const awaiting: Awaiting[] = [];
  const reader = new ReplyReader((reply) => {
    const first = awaiting[0]!;
    first.take(reply);
    if (--first.left > 0) return;
    awaiting.shift();
    reader.room = awaiting[0]?.most ?? 0;
  });
  // The client's parser would end the process for one wrong answer, or fill its memory.
  stream.removeAllListeners("data").on("data", (chunk: Buffer) => {
    if (ended.signal.aborted) return;
    try {
      reader.read(chunk);
    } catch (error) {
      end(error instanceof WrongAnswer ? outage(`${shown} ${error.message}`, error) : asError(error));
    }
  });
  return {
    ended: ended.signal,
    end,
    get heard() {
      return stream.bytesRead;
    },
    send: ({ bytes, count, most, read }) => {
      const replies = repliesTo(count, read, ended.signal);
      if (count === 0 || ended.signal.aborted) return replies;
      if (!stream.writable) {
        for (let i = 0; i < count; i++) replies.take(lost());
        return replies;
      }
      void replies.landed.then(awaited.begin());
      if (awaiting.length === 0) reader.room = most;
      awaiting.push({ take: replies.take, left: count, most });
      stream.write(bytes);
      return replies;
    },
  };
}

/** Answers of one flight that are still to come. */
interface Awaiting {
  readonly take: (answer: Reply | RedisRefusal) => void;
  left: number;
  readonly most: number;
}

/** A private field of the client: its own methods make an object, a promise and strings for each command, and its parser has no bounds. */
function streamOf(client: Redis): Socket {
  const { stream } = client as unknown as { readonly stream?: Socket };
  if (typeof stream?.write === "function" && typeof stream.removeAllListeners === "function") return stream;
  throw unfit("has no socket where it is looked for");
}

const unfit = (what: string): WaybillError =>
  new WaybillError("DRIVER_UNFIT", `this version of ioredis ${what}: use 5.3 or later of 5.x, or 6.x`);

/** Replies come in the order of the commands. */
function repliesTo<T>(
  count: number,
  read: CommandsWritten<T>["read"],
  ended: AbortSignal,
): CommandsSent<T> & { take(answer: Reply | Error): void } {
  const answers = Array.from({ length: count }, (): T | undefined => undefined);
  let next = 0;
  let land: () => void = () => undefined;
  const take = (answer: Reply | Error): void => {
    if (next === count) return;
    answers[next] = read(answer, next);
    next += 1;
    if (next === count) land();
  };
  const landed = new Promise<void>((resolve) => {
    const leave = onAbort(ended, () => {
      while (next < count) take(asError(ended.reason));
    });
    land = () => {
      leave();
      resolve();
    };
    if (next === count) land();
  });
  return { answers, landed, take };
}
