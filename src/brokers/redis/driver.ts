import type { Socket } from "node:net";
import type { Redis } from "ioredis";
import { asError } from "../../core/errors.ts";
import { createAwaited } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import { onAbort, shared } from "../../core/time.ts";
import { notWaitedFor } from "../kit/link.ts";
import { unreachable } from "../kit/outage.ts";
import type { ServerAddress } from "./url.ts";

export type Argument = string | Buffer;
/** A command's name and its arguments. */
export type RedisCommand = readonly [name: string, ...args: Argument[]];
/** Strings of any kind come as bytes. */
export type Reply = Buffer | number | null | readonly Reply[];

/** What the server answered instead of doing it. Its first word is the protocol's own code for the reason. */
export class RedisRefusal extends Error {
  readonly word: string;

  constructor(message: string) {
    super(message);
    this.name = "RedisRefusal";
    this.word = /^[A-Z]+(?= |$)/.exec(message)?.[0] ?? "ERR";
  }
}

/** Commands that were written at once. */
export interface CommandsSent {
  /** Each command's own: a reply, a RedisRefusal, or why the connection ended without either; undefined while it is to come. */
  readonly answers: readonly (Reply | Error | undefined)[];
  /** Resolves when all are there; never rejects. */
  readonly landed: Promise<void>;
}

/** One connection, from its beginning to its end: it is not mended, and nothing is ever sent twice. */
export interface Connection {
  send(commands: readonly RedisCommand[]): CommandsSent;
  /** How many bytes have come so far: a large answer is under way for long. */
  readonly heard: number;
  end(why: Error): void;
  /** Its reason is why. */
  readonly ended: AbortSignal;
}

/** Connects, and sends nothing yet: who we are and which database we want is for the first commands. */
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
    // A connection that is lost stays lost: whatever was under way is rejected at once, and nothing waits in a queue to be sent again.
    retryStrategy: () => null,
    enableOfflineQueue: false,
    autoResendUnfulfilledCommands: false,
    maxRetriesPerRequest: 0,
    // Its handshake goes on when SELECT or AUTH fails, and prints to the console; ours does not.
    enableReadyCheck: false,
    disableClientInfo: true,
    ...{ protocol: 2 }, // from version 6 on it would begin with HELLO, before we have said who we are
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
  const answer = (error: Error | null | undefined, reply: unknown): Reply | Error => {
    if (!error) return reply as Reply;
    // Not the client's own error: it holds the command's arguments, and a password may be among them, or an event's data.
    return error.name === "ReplyError" ? new RedisRefusal(error.message) : lost();
  };
  const { stream } = client as unknown as { readonly stream?: Partial<Socket> };
  const awaited = createAwaited(stream);
  return {
    ended: ended.signal,
    end,
    get heard() {
      return stream?.bytesRead ?? 0;
    },
    send: (commands) => {
      if (ended.signal.aborted) return { answers: commands.map(() => asError(ended.signal.reason)), landed: Promise.resolve() };
      const came = awaited.begin();
      const sent = write(client, commands, ended.signal, answer);
      void sent.landed.then(came);
      return sent;
    },
  };
}

type Settle = (error: Error | null | undefined, reply: unknown) => Reply | Error;

function write(client: Redis, commands: readonly RedisCommand[], ended: AbortSignal, answer: Settle): CommandsSent {
  const answers = commands.map((): Reply | Error | undefined => undefined);
  const landed = new Promise<void>((resolve) => {
    const leave = onAbort(ended, () => {
      for (const [i, given] of answers.entries()) if (given === undefined) answers[i] = asError(ended.reason);
      resolve();
    });
    const land = (): void => {
      leave();
      resolve();
    };
    const pipeline = client.pipeline();
    let open = commands.length;
    commands.forEach(([name, ...args], i) => {
      pipeline.callBuffer(name, ...args, (error?: Error | null, reply?: unknown) => {
        const own = answer(error, reply);
        if (answers[i] === undefined) answers[i] = own;
        if ((open -= 1) === 0) land();
      });
    });
    pipeline.exec().catch(() => undefined); // each callback has had it
    if (open === 0) land();
  });
  return { answers, landed };
}
