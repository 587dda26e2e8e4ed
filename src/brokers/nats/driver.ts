import { connect as connectTcp } from "node:net";
import { checkServerIdentity } from "node:tls";
import type * as Client from "@nats-io/transport-node";
import { asError } from "../../core/errors.ts";
import { createAwaited, type Awaited } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import type { Clock } from "../../core/clock.ts";
import { follow, shared } from "../../core/time.ts";
import { readHead, type Head } from "./head.ts";
import type { Address } from "../kit/url.ts";
import type { Settings } from "./url.ts";

export interface NatsMessage {
  readonly subject: string;
  /** Where it may be acknowledged or answered; empty when nowhere. */
  readonly reply: string;
  /** Read each time it is asked for: thousands of headers in a few kilobytes take a hundred times as much once they are read. */
  readonly head: Head;
  readonly data: Uint8Array;
  /** Headers and data as they came. */
  readonly raw: Uint8Array;
}

export type NatsAnswer =
  | { readonly is: "answer"; readonly message: NatsMessage }
  /** The server knows nobody who listens to the subject. */
  | { readonly is: "nobody" }
  | { readonly is: "forbidden"; readonly error: Error }
  /** The client would not send it, for what it is. */
  | { readonly is: "unfit"; readonly error: Error }
  /** There was no connection any more. */
  | { readonly is: "unsent"; readonly error: Error }
  /** It may have been sent, and nobody answered. */
  | { readonly is: "silence"; readonly error: Error };

interface Request {
  readonly subject: string;
  readonly data: Uint8Array;
  readonly headers?: readonly (readonly [string, string])[];
}

export interface Connection {
  /** The server's. */
  readonly version: string;
  /** The largest message, headers included. */
  readonly maxBytes: number;
  /** Aborts when it is over, however that came; it is never taken up again. */
  readonly ended: AbortSignal;
  /** Never rejects. */
  request(request: Request): Promise<NatsAnswer>;
  /** Does nothing once the connection has ended. */
  publish(subject: string, data: Uint8Array, reply?: string): void;
  /** What comes back ends it. */
  subscribe(subject: string, take: (message: NatsMessage) => void): () => void;
  /** A subject that nobody else has. */
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
const forgottenMs = 60_000;
const never = 2 ** 31 - 1;

/**
 * One connection to one server, which is not mended: while the client reconnects by itself it keeps what it is given and sends it later,
 * and says nothing of what was under way. Here the end of the link is the end of the connection, and whoever needs one dials again.
 */
export async function dial({ settings, address, timeoutMs, clock }: Dial, signal: AbortSignal): Promise<Connection> {
  const client = await loadClient("NATS", "@nats-io/transport-node", () => import("@nats-io/transport-node"));
  await greet(address, settings, timeoutMs, signal);
  const nc = await client.connect({
    servers: [`${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`],
    name: "waybill",
    timeout: timeoutMs,
    reconnect: false,
    ignoreClusterUpdates: true,
    noAsyncTraces: true,
    pingInterval: never, // see `watch`
    tls: settings.tls === null ? null : tlsFor(address, settings.tls),
    ...authenticationOf(client, settings),
  });
  return wrap(client, nc, clock);
}

/** The client verifies the name "localhost" where a server is named by its address; here it is always what the URL says. */
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
 * Waits for the server's first line on a connection of its own. The client keeps the socket to a server that says nothing for ever, and a
 * process with it.
 */
async function greet({ host, port }: Address, { tls }: Settings, timeoutMs: number, outer: AbortSignal): Promise<void> {
  const { signal, release } = follow(outer); // a socket never stops listening to its signal
  const said = new Promise<string>((resolve, reject) => {
    const socket = connectTcp({ host, port, signal });
    let text = "";
    socket.setTimeout(timeoutMs, () => socket.destroy(new Error(`it said nothing within ${timeoutMs} ms`)));
    socket.on("data", (data) => {
      text += data.toString();
      if (text.includes("\n") || text.length > 65_536) socket.destroy();
    });
    socket.on("error", reject);
    socket.on("close", () => (text.includes("\n") ? resolve(text) : reject(new Error("it ended the connection without a word"))));
  });
  const line = await said.finally(release);
  const info = /^INFO (\{.*\})/.exec(line)?.[1];
  if (info === undefined) throw new Error("it does not speak NATS");
  const { tls_required: required, headers } = JSON.parse(info) as { tls_required?: boolean; headers?: boolean };
  if (required === true && tls === null) throw new Error("it takes encrypted connections only: write the URL with tls:");
  if (headers !== true) throw new Error("it takes no headers: NATS 2.2 or later is needed");
}

/** The client's own watch waits, before it gives a dead link up, until everything has been written to it. */
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
  let maxBytes = nc.info?.max_payload ?? 1024 * 1024;
  const awaited = createAwaited(inside(nc).protocol?.transport?.socket);
  inside(nc).protocol?.heartbeats?.cancel?.(); // its timer would keep the process alive; see `watch`
  const requests = listen(client, nc, clock, awaited);
  const ended = shared(new AbortController());
  void nc.closed().then(() => ended.abort());
  void watch(nc, ended.signal, requests, clock);
  return {
    version: nc.info?.version ?? "0",
    ended: ended.signal,
    get maxBytes() {
      return (maxBytes = nc.info?.max_payload ?? maxBytes);
    },
    request: requests.send,
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
}

/** What the client keeps to itself. */
interface Inside {
  readonly protocol?: {
    readonly transport?: { readonly socket?: unknown };
    readonly heartbeats?: { readonly cancel?: () => void };
  };
}

const inside = (nc: Client.NatsConnection): Inside => nc as Inside;

interface Requests {
  send(request: Request): Promise<NatsAnswer>;
  /** Clears away what was asked long ago: nobody waits for it any more. */
  sweep(): void;
}

/** Requests and their answers. The client's own make a timer and two errors for each. */
function listen(client: typeof Client, nc: Client.NatsConnection, clock: Clock, awaited: Awaited): Requests {
  const { errors } = client;
  const inbox = client.createInbox();
  const waiting = new Map<string, { readonly subject: string; readonly since: number; readonly settle: (answer: NatsAnswer) => void }>();
  let last = 0;
  let denied: NatsAnswer | null = null;
  const settle = (reply: string, answer: NatsAnswer): void => {
    waiting.get(reply)?.settle(answer);
    waiting.delete(reply);
  };
  const settleAll = (answer: NatsAnswer): void => {
    for (const reply of waiting.keys()) settle(reply, answer);
  };

  nc.subscribe(`${inbox}.*`, {
    callback(error, message) {
      if (error !== null) return settleAll((denied = { is: "forbidden", error }));
      const answer = messageOf(message);
      const nobody = answer.head.status === 503 && answer.data.length === 0;
      settle(answer.subject, nobody ? { is: "nobody" } : { is: "answer", message: answer });
    },
  });
  // Errors come in the order of what they are about, and name no more than its subject.
  const refuse = (error: Client.PermissionViolationError): void => {
    for (const [reply, { subject }] of waiting) {
      if (error.operation === "publish" && subject === error.subject) return settle(reply, { is: "forbidden", error });
    }
  };
  void (async () => {
    for await (const status of nc.status()) {
      if (status.type === "error" && status.error instanceof errors.PermissionViolationError) refuse(status.error);
    }
  })();
  void nc.closed().then((error) => settleAll({ is: "silence", error: error ?? new Error("the connection has ended") }));

  return {
    sweep() {
      const before = clock.monotonic() - forgottenMs;
      for (const [reply, { since }] of waiting) {
        if (since > before) return;
        settle(reply, { is: "silence", error: new Error(`there was no answer within ${forgottenMs} ms`) });
      }
    },
    send: ({ subject, data, headers }) =>
      new Promise((resolve) => {
        if (denied !== null) return resolve(denied);
        const reply = `${inbox}.${(last += 1)}`;
        try {
          nc.publish(subject, data, { reply, ...(headers && { headers: headersOf(client, headers) }) });
          const came = awaited.begin();
          waiting.set(reply, {
            ...{ subject, since: clock.monotonic() },
            settle: (answer) => {
              came();
              resolve(answer);
            },
          });
        } catch (cause) {
          const error = asError(cause);
          resolve({ is: error instanceof errors.InvalidArgumentError ? "unfit" : "unsent", error });
        }
      }),
  };
}

function headersOf(client: typeof Client, pairs: readonly (readonly [string, string])[]): Client.MsgHdrs {
  const headers = client.headers();
  for (const [name, value] of pairs) headers.append(name, value);
  return headers;
}

/** Every message of the client has it, and JetStream's own library counts by it; only its type keeps quiet about it. */
type Sized = Client.Msg & { size(): number };

/** Never by the client's `headers`, which throws at some. They are the bytes before the data, and the size says how many. */
function messageOf(message: Client.Msg): NatsMessage {
  const { subject, data: view } = message;
  const reply = message.reply ?? "";
  const bytes = (message as Sized).size() - Buffer.byteLength(subject) - Buffer.byteLength(reply) - view.byteLength;
  const headBytes = Math.min(Math.max(0, bytes), view.byteOffset);
  // Never the client's view: it is a Buffer, whose `slice` copies nothing, unless the message came in several pieces.
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
