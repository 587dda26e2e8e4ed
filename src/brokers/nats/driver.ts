import { connect as connectTcp } from "node:net";
import { checkServerIdentity } from "node:tls";
import type * as Client from "@nats-io/transport-node";
import type { Outgoing } from "../../contracts/sink.ts";
import { asError, show, WaybillError } from "../../core/errors.ts";
import { createAwaited } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import type { Clock } from "../../core/clock.ts";
import { alarm, follow, shared } from "../../core/time.ts";
import { framesOf } from "./frames.ts";
import { connectGuarded, maxLine, type Guarded } from "./guard.ts";
import { readHead, type Head } from "./head.ts";
import { createRequests, type NatsAnswer, type Requests } from "./requests.ts";
import type { Address } from "../kit/url.ts";
import type { Settings } from "./url.ts";

export interface NatsMessage {
  readonly subject: string;
  /** The subject for its acknowledgement or answer; empty when there is none. */
  readonly reply: string;
  /** Parsed on each access: thousands of headers in a few kilobytes take a hundred times as much memory once they are parsed. */
  readonly head: Head;
  readonly data: Uint8Array;
  /** Headers and data as they came. */
  readonly raw: Uint8Array;
}

export interface Connection {
  /** The server's. */
  readonly version: string;
  /** The largest message, headers included. */
  readonly maxBytes: number;
  /** Aborts when the connection has ended, for whatever reason. It never reconnects. */
  readonly ended: AbortSignal;
  /** Never rejects. */
  request(subject: string, data: Uint8Array): Promise<NatsAnswer>;
  /**
   * Sends all messages to the stream in one write. `take` gets each one's answer once, with its place, as it comes. Resolves when all
   * have one; never rejects.
   */
  fly(subject: string, stream: string, messages: readonly Outgoing[], take: (answer: NatsAnswer, place: number) => void): Promise<void>;
  /** Does nothing once the connection has ended. */
  publish(subject: string, data: Uint8Array, reply?: string): void;
  /** The returned function unsubscribes. */
  subscribe(subject: string, take: (message: NatsMessage) => void): () => void;
  /** A unique subject. */
  inbox(): string;
  close(): Promise<void>;
}

interface Dial {
  readonly settings: Settings;
  readonly address: Address;
  readonly timeoutMs: number;
  readonly clock: Clock;
}

const pingMs = 3_000;
const pingsToLose = 2;
const never = 2 ** 31 - 1;

/**
 * One connection to one server, which never reconnects: a reconnecting client keeps what it is given, sends it later, and does not report
 * what was under way. Here the connection ends with its link, and the caller that needs another dials again.
 */
export async function dial({ settings, address, timeoutMs, clock }: Dial, signal: AbortSignal): Promise<Connection> {
  const client = await loadClient("NATS", "@nats-io/transport-node", () => import("@nats-io/transport-node"));
  await greet({ settings, address, timeoutMs, clock }, signal);
  const nc = await connect(client, {
    servers: [`${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`],
    name: "waybill",
    timeout: timeoutMs,
    reconnect: false,
    ignoreClusterUpdates: true,
    noAsyncTraces: true,
    pingInterval: never, // see `watch`
    tls: settings.tls === null ? null : tlsFor(address, settings.tls),
    ...authenticationOf(client, settings),
  }).catch((error: unknown) => {
    const { name, message } = asError(error);
    if (name === "TimeoutError") throw new Error(`it did not greet within ${timeoutMs} ms`, { cause: error });
    throw message.includes("an undefined error") ? new Error("the server closed the connection as it opened", { cause: error }) : error;
  });
  if (isLimit(nc.info?.max_payload)) return wrap(client, nc, clock);
  await nc.close();
  throw badLimit(nc.info?.max_payload);
}

/** What the client's own `connect` does, with guards around it. */
async function connect(client: typeof Client, options: Client.NodeConnectionOptions): Promise<Client.NatsConnection> {
  const { NatsConnectionImpl: Own, ProtocolHandler: Protocol } = client as unknown as Partial<Classes>;
  if (Own === undefined || Protocol === undefined) throw unfit("connects");
  // Only this sets the client's way to open sockets. With two ways to name one server, it refuses before it opens any.
  await client.connect({ servers: ["-"], port: 1 }).catch(() => undefined);
  const nc = new Own(options);
  const protocol = new Protocol(nc.options, nc);
  await connectGuarded(protocol);
  return Object.assign(nc, { protocol });
}

/** Classes that the client exports for its own other packages. */
interface Classes {
  readonly NatsConnectionImpl: new (options: Client.NodeConnectionOptions) => Client.NatsConnection & { readonly options: object };
  readonly ProtocolHandler: new (options: object, connection: object) => Guarded;
}

const unfit = (does: string): WaybillError =>
  new WaybillError("DRIVER_UNFIT", `this version of @nats-io/transport-node ${does} in another way: use 3.4 or later of 3.x`);

/** An event's attributes alone take about half of this. */
const leastBytes = 1_024;
const isLimit = (bytes: unknown): bytes is number => Number.isSafeInteger(bytes) && (bytes as number) >= leastBytes;
const badLimit = (bytes: unknown): Error =>
  new Error(`its max_payload is ${bytes === undefined ? "missing" : show(bytes)}, and no event fits into that: set ${leastBytes} or more`);

/** The client verifies the name "localhost" where a server is given by its address. Here the host of the URL is always verified. */
function tlsFor({ host }: Address, { ca, cert, key }: NonNullable<Settings["tls"]>): NonNullable<Client.NodeConnectionOptions["tls"]> {
  const verified = { rejectUnauthorized: true, checkServerIdentity: (_: string, peer: never) => checkServerIdentity(host, peer) };
  return { ...verified, ...(ca && { ca }), ...(cert && { cert }), ...(key && { key }) };
}

function authenticationOf(client: typeof Client, { user, password, token, credentials }: Settings): Partial<Client.NodeConnectionOptions> {
  if (credentials !== null) return { authenticator: client.credsAuthenticator(credentials) };
  if (token !== null) return { token };
  return user === null ? {} : { user, pass: password ?? "" };
}

/**
 * Waits for the server's first line on a connection of its own. When a server says nothing, the client keeps its socket open for ever, and
 * the process alive with it.
 */
async function greet({ settings: { tls }, address: { host, port }, timeoutMs, clock }: Dial, outer: AbortSignal): Promise<void> {
  const { signal, release } = follow(outer); // a socket never removes its listener from the signal
  let quiet = (): void => undefined;
  const said = new Promise<string>((resolve, reject) => {
    const socket = connectTcp({ host, port, signal });
    let text = "";
    // A deadline for the whole line: a server may send a byte now and then.
    quiet = alarm(clock, timeoutMs, () => {
      socket.destroy(new Error(text === "" ? `it said nothing within ${timeoutMs} ms` : `it did not greet within ${timeoutMs} ms`));
    });
    socket.on("data", (data) => {
      text += data.toString();
      if (text.includes("\n") || text.length > maxLine) socket.destroy();
    });
    socket.on("error", reject);
    socket.on("close", () => (text === "" ? reject(new Error("it ended the connection without a word")) : resolve(text)));
  });
  const line = await said.finally(() => {
    quiet();
    release();
  });
  const info = infoIn(line);
  if (info === null) throw new Error("it does not speak NATS");
  if (info.tls_required === true && tls === null) throw new Error("it takes encrypted connections only: write the URL with tls:");
  if (info.headers !== true) throw new Error("it takes no headers: NATS 2.2 or later is needed");
  if (!isLimit(info.max_payload)) throw badLimit(info.max_payload);
}

function infoIn(line: string): { tls_required?: unknown; headers?: unknown; max_payload?: unknown } | null {
  try {
    return JSON.parse(/^INFO (\{.*\})/.exec(line)?.[1] ?? "null") as object | null;
  } catch {
    return null;
  }
}

/** Replaces the client's heartbeats: they give up a dead link only after everything has been written to it. */
async function watch(nc: Client.NatsConnection, ended: AbortSignal, requests: Requests, clock: Clock): Promise<void> {
  let unanswered = 0;
  for (;;) {
    await clock.sleep(pingMs, ended, "idle");
    if (ended.aborted) return;
    requests.sweep();
    if (unanswered === pingsToLose) return nc.close();
    unanswered += 1;
    nc.flush().then(
      () => (unanswered = 0),
      () => undefined,
    );
  }
}

function wrap(client: typeof Client, nc: Client.NatsConnection, clock: Clock): Connection {
  let maxBytes = nc.info!.max_payload;
  const awaited = createAwaited(inside(nc).protocol?.transport?.socket);
  inside(nc).protocol?.heartbeats?.cancel?.(); // its timer would keep the process alive; see `watch`
  const requests = createRequests(clock, awaited);
  const inbox = listen(client, nc, requests);
  const write = writerOf(nc);
  const ended = shared(new AbortController());
  void nc.closed().then(() => ended.abort());
  void watch(nc, ended.signal, requests, clock);
  const connection: Connection = {
    version: nc.info?.version ?? "0",
    ended: ended.signal,
    get maxBytes() {
      // A server can change it at any time. With a limit that nothing fits into, the connection ends, and dialling reports why.
      const now = nc.info?.max_payload;
      if (isLimit(now)) maxBytes = now;
      else if (now !== undefined) void nc.close();
      return maxBytes;
    },
    async request(subject, data) {
      let answer: NatsAnswer | undefined;
      const send = (number: number): void => nc.publish(subject, data, { reply: `${inbox}.${number}` });
      await requests.begin(subject, 1, send, (given) => (answer = given));
      return answer!;
    },
    fly(subject, stream, messages, take) {
      const send = (number: number): void => {
        const heading = { subject, stream, inbox, number, maxBytes: connection.maxBytes };
        const frames = framesOf(heading, messages, (one, error) => requests.answered(one, { is: "unfit", error }));
        if (frames.length > 0) write(frames);
      };
      return requests.begin(subject, messages.length, send, take);
    },
    publish(subject, data, reply) {
      if (!nc.isClosed()) nc.publish(subject, data, reply === undefined ? {} : { reply });
    },
    subscribe(subject, take) {
      const subscription = nc.subscribe(subject, {
        callback: (error, message) => {
          if (error === null) take(messageOf(message));
        },
      });
      return () => subscription.unsubscribe();
    },
    inbox: () => client.createInbox(),
    async close() {
      const closed = awaited.begin();
      await nc.close().finally(closed);
    },
  };
  return connection;
}

/** Private fields of the client. */
interface Inside {
  readonly protocol?: {
    readonly transport?: { readonly socket?: unknown };
    readonly heartbeats?: { readonly cancel?: () => void };
    readonly sendCommand?: (command: Uint8Array) => void;
  };
}

const inside = (nc: Client.NatsConnection): Inside => nc as Inside;

/**
 * Writes whole commands of the protocol, through the same queue as the client's own commands. Those are whole too, so no command lands in
 * the middle of another.
 */
function writerOf(nc: Client.NatsConnection): (commands: Uint8Array) => void {
  const { protocol } = inside(nc);
  if (typeof protocol?.sendCommand !== "function") throw unfit("sends");
  return (commands) => {
    if (nc.isClosed()) throw new Error("the connection has ended");
    protocol.sendCommand!(commands);
  };
}

/** Receives the answers to numbered requests. The client's own requests create a timer and two errors each. */
function listen(client: typeof Client, nc: Client.NatsConnection, requests: Requests): string {
  const inbox = client.createInbox();
  const prefix = inbox.length + 1;
  nc.subscribe(`${inbox}.*`, {
    callback(error, message) {
      if (error !== null) return requests.end({ is: "forbidden", error });
      const { data } = message;
      const number = Number(message.subject.slice(prefix));
      if (data.byteLength > 0 || messageOf(message).head.status !== 503) return requests.answered(number, data);
      requests.answered(number, { is: "nobody", error: new Error("nobody listens to the subject") });
    },
  });
  void (async () => {
    for await (const status of nc.status()) {
      if (status.type !== "error" || !(status.error instanceof client.errors.PermissionViolationError)) continue;
      const { operation, subject } = status.error;
      if (operation === "publish") requests.refused(subject, status.error);
    }
  })();
  void nc.closed().then((error) => requests.end({ is: "silence", error: error ?? new Error("the connection has ended") }));
  return inbox;
}

/** Every message of the client has `size`, and JetStream's own library counts with it. Only the type does not declare it. */
type Sized = Client.Msg & { size(): number };

/** Never uses the client's `headers`, which throws on some. The headers are the bytes before the data, and `size` says how many. */
function messageOf(message: Client.Msg): NatsMessage {
  const { subject, data: view } = message;
  const reply = message.reply ?? "";
  const bytes = (message as Sized).size() - Buffer.byteLength(subject) - Buffer.byteLength(reply) - view.byteLength;
  const headBytes = Math.min(Math.max(0, bytes), view.byteOffset);
  // Never the client's view: unless the message came in several pieces, it is a Buffer, whose `slice` copies nothing.
  const raw = new Uint8Array(view.buffer, view.byteOffset - headBytes, headBytes + view.byteLength);
  return {
    subject,
    reply,
    get head() {
      return readHead(raw.subarray(0, headBytes));
    },
    data: raw.subarray(headBytes),
    raw,
  };
}
