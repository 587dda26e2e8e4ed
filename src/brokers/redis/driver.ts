import type { Socket } from "node:net";
import type { Redis } from "ioredis";
import { asError, WaybillError } from "../../core/errors.ts";
import { shared } from "../../core/signal.ts";
import type { Place } from "./url.ts";

export type Argument = string | Buffer;
/** A command's name and its arguments. */
export type Command = readonly [name: string, ...args: Argument[]];
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
export interface Flight {
  /** Each command's own: a reply, a RedisRefusal, or why the connection ended without either; undefined while it is to come. */
  readonly answers: readonly (Reply | Error | undefined)[];
  /** Resolves when all are there; never rejects. */
  readonly landed: Promise<void>;
}

/** One connection, from its beginning to its end: it is not mended, and nothing is ever sent twice. */
export interface Connection {
  send(commands: readonly Command[]): Flight;
  /** How many bytes have come so far: a large answer is under way for long. */
  readonly heard: number;
  end(why: Error): void;
  /** Its reason is why. */
  readonly ended: AbortSignal;
}

/** Connects, and sends nothing yet: who we are and which database we want is for the first commands. */
export async function connect({ host, port, tls, shown }: Place, timeoutMs: number, signal: AbortSignal): Promise<Connection> {
  const Client = await load();
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
  const underWay = new Set<(why: Error) => void>();
  let failure: Error | null = null;
  const end = (why: Error): void => {
    if (ended.signal.aborted) return;
    ended.abort(why);
    for (const lose of underWay) lose(why);
    client.disconnect();
  };
  const lost = (): Error => {
    const why = failure?.message || (failure as { code?: string } | null)?.code || "the connection was closed";
    return new WaybillError("DESTINATION_UNAVAILABLE", `${shown} cannot be reached: ${why}`, failure === null ? {} : { cause: failure });
  };
  client.on("error", (error: Error) => void (failure ??= error));
  client.on("end", () => end(lost()));
  const calledOff = (): void => end(new WaybillError("STOPPED", `connecting to ${shown} was called off`));
  if (signal.aborted) calledOff();
  signal.addEventListener("abort", calledOff, { once: true });
  try {
    if (!ended.signal.aborted) await client.connect().catch(() => end(lost()));
    ended.signal.throwIfAborted();
  } finally {
    signal.removeEventListener("abort", calledOff);
  }
  const answer = (error: Error | null | undefined, reply: unknown): Reply | Error => {
    if (!error) return reply as Reply;
    // Not the client's own error: it holds the command's arguments, and a password may be among them, or an event's data.
    return error.name === "ReplyError" ? new RedisRefusal(error.message) : lost();
  };
  return {
    ended: ended.signal,
    end,
    get heard() {
      return (client as unknown as { readonly stream?: Partial<Socket> }).stream?.bytesRead ?? 0;
    },
    send: (commands) => {
      if (ended.signal.aborted) return { answers: commands.map(() => asError(ended.signal.reason)), landed: Promise.resolve() };
      return write(client, commands, underWay, answer);
    },
  };
}

type Settle = (error: Error | null | undefined, reply: unknown) => Reply | Error;

function write(client: Redis, commands: readonly Command[], underWay: Set<(why: Error) => void>, answer: Settle): Flight {
  const answers = commands.map((): Reply | Error | undefined => undefined);
  const landed = new Promise<void>((resolve) => {
    const land = (): void => {
      underWay.delete(lose);
      resolve();
    };
    const lose = (why: Error): void => {
      for (const [i, given] of answers.entries()) if (given === undefined) answers[i] = why;
      land();
    };
    underWay.add(lose);
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

async function load(): Promise<typeof Redis> {
  try {
    return (await import("ioredis")).Redis;
  } catch (cause) {
    throw new WaybillError("DRIVER_MISSING", "the Redis client is not installed: npm install ioredis", { cause });
  }
}
