import type { Socket } from "node:net";
import type { Redis } from "ioredis";
import { asError, WaybillError } from "../../core/errors.ts";
import { createAwaited } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import { onAbort, shared } from "../../core/time.ts";
import { notWaitedFor } from "../kit/link.ts";
import { unreachable } from "../kit/outage.ts";
import type { ServerAddress } from "./url.ts";

/** Strings of any kind come as bytes. */
export type Reply = Buffer | number | null | readonly Reply[];

/** An error reply of the server. Its first word is the protocol's code for the reason. */
export class RedisRefusal extends Error {
  readonly word: string;

  constructor(message: string) {
    super(message);
    this.name = "RedisRefusal";
    this.word = /^[A-Z]+(?= |$)/.exec(message)?.[0] ?? "ERR";
  }
}

/** Commands in the protocol's own bytes. */
export interface CommandsWritten<T> {
  readonly bytes: Uint8Array;
  readonly count: number;
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
  // Not the client's own error: it holds the command's arguments, which may include a password or an event's data.
  const own = (error: Error): Error => (error.name === "ReplyError" ? new RedisRefusal(error.message) : lost());
  const { stream, commandQueue } = insideOf(client);
  const awaited = createAwaited(stream);
  return {
    ended: ended.signal,
    end,
    get heard() {
      return stream.bytesRead;
    },
    send: ({ bytes, count, read }) => {
      const replies = repliesTo(count, read, ended.signal);
      if (count === 0 || ended.signal.aborted) return replies;
      if (!stream.writable) {
        for (let i = 0; i < count; i++) replies.take(lost());
        return replies;
      }
      void replies.landed.then(awaited.begin());
      stream.write(bytes);
      // The client gives each reply to the next item in its queue. Write and push share a tick: no command of its own comes between.
      const command = { name: "call", args: [], resolve: replies.take, reject: (error: Error) => replies.take(own(error)) };
      const item = { command, stream, select: 0 };
      for (let i = 0; i < count; i++) commandQueue.push(item);
      return replies;
    },
  };
}

/** Private fields of the client. */
interface Inside {
  readonly stream?: Socket;
  readonly commandQueue?: { push(item: object): unknown };
}

/** For sending without the client's own method, which makes an object, a promise and strings for each command. */
function insideOf(client: Redis): Required<Inside> {
  const { stream, commandQueue } = client as unknown as Inside;
  if (typeof stream?.write !== "function" || typeof commandQueue?.push !== "function")
    throw new WaybillError("DRIVER_UNFIT", "this version of ioredis sends in another way: use 5.3 or later of 5.x, or 6.x");
  return { stream, commandQueue };
}

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
