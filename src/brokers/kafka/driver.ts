import type { Socket } from "node:net";
import type * as Client from "@platformatic/kafka";
import type { Clock } from "../../core/clock.ts";
import { asError, isWaybillError, WaybillError } from "../../core/errors.ts";
import { createAwaited } from "../../core/idle.ts";
import { loadClient } from "../../core/load-client.ts";
import { shared, over } from "../../core/time.ts";
import { wrongAnswer } from "./codes.ts";
import { createFraming, WrongSize } from "./framing.ts";
import { fetchAnswerOf, type FetchAnswer } from "./reading/fetched.ts";
import { written, type Address } from "../kit/url.ts";
import type { Settings } from "./url.ts";
import { checkVersions, type Versions } from "./versions.ts";

/** One connection to one broker. It never reconnects, and never sends anything twice. */
export interface Connection {
  /**
   * The broker's answer, error codes included. Rejects when the connection ends first. Ends the connection when no answer comes within
   * `timeoutMs` plus `extraMs`, or when it is larger than one without messages can be, by more than `messageBytes`.
   */
  ask<Name extends RequestName>(name: Name, request: RequestOf<Name>, bounds?: AnswerBounds): Promise<AnswerOf<Name>>;
  end(why: Error): void;
  /** Its reason says why the connection ended. */
  readonly ended: AbortSignal;
}

interface AnswerBounds {
  readonly extraMs?: number;
  readonly messageBytes?: number;
}

/** The most bytes of an answer without messages: what brokers say of topics, groups and their members. */
const plainBytes = 16 * 1024 * 1024;

interface Dial {
  readonly address: Address;
  readonly settings: Pick<Settings, "sasl" | "tls">;
  readonly clock: Clock;
  /** For connecting, and for every answer. */
  readonly timeoutMs: number;
}

/**
 * We use the client library's connections and lowest-layer requests, and nothing that it builds on them: see docs/decisions/0013. Each
 * request has a version that Kafka 3.1 has and 4.x takes, without optional fields in the answer: version 1 of the library misreads these.
 */
const requestsOf = (client: typeof Client) => ({
  apiVersions: client.apiVersionsV3?.api,
  metadata: client.metadataV12?.api,
  findCoordinator: client.findCoordinatorV4?.api,
  produce: produceOf(client),
  initProducerId: client.initProducerIdV4?.api,
  addPartitionsToTxn: client.addPartitionsToTxnV3?.api,
  endTxn: client.endTxnV3?.api,
  fetch: fetchOf(client),
  listOffsets: client.listOffsetsV6?.api,
  joinGroup: client.joinGroupV7?.api,
  syncGroup: client.syncGroupV5?.api,
  heartbeat: client.heartbeatV4?.api,
  leaveGroup: client.leaveGroupV4?.api,
  offsetCommit: client.offsetCommitV8?.api,
  offsetFetch: client.offsetFetchV8?.api,
  deleteGroups: client.deleteGroupsV2?.api,
  createTopics: client.createTopicsV7?.api,
  deleteTopics: client.deleteTopicsV6?.api,
  describeConfigs: client.describeConfigsV4?.api,
});

type Requests = ReturnType<typeof requestsOf>;
type RequestName = keyof Requests;
/** What each request takes, and what a broker answers, as the client declares them. Every answer may hold error codes: see codes.ts. */
type Wire = { [Name in RequestName]: Requests[Name] extends Client.API<infer Request, infer Answer> ? [Request, Answer] : never };
type RequestOf<Name extends RequestName> = Frozen<Wire[Name][0]>;
export type AnswerOf<Name extends RequestName> = Frozen<Exclude<Wire[Name][1], boolean>>;

/** Nothing in it is written to. */
type Frozen<T> =
  T extends ReadonlyMap<infer Key, infer Value>
    ? ReadonlyMap<Key, Value>
    : T extends Uint8Array
      ? T
      : { readonly [Key in keyof T]: Frozen<T[Key]> };

/** The client library's request with a body that we encode: the library's own encoder takes ten times as long per message. */
function produceOf({ produceV9, Writer }: typeof Client) {
  if (typeof produceV9?.parseResponse !== "function" || typeof Writer?.create !== "function") return undefined as never;
  const { key, version } = produceV9.api;
  const request = (connection: Client.Connection, body: readonly Buffer[], callback: Client.CallbackWithPromise<Answer>): void => {
    const payload = (): Client.Writer => body.reduce((writer, part) => writer.append(part), Writer.create());
    connection.send(key, version, payload, produceV9.parseResponse, true, true, callback);
  };
  type Answer = ReturnType<typeof produceV9.parseResponse>;
  return Object.assign(request, { key, version }) as unknown as Client.API<[body: readonly Buffer[]], Answer>;
}

/** The client library's request with an answer that fetched.ts reads. */
function fetchOf({ fetchV13 }: typeof Client) {
  if (typeof fetchV13?.api !== "function" || typeof fetchV13.createRequest !== "function") return undefined as never;
  const { key, version } = fetchV13.api;
  const create = fetchV13.createRequest as (...request: readonly unknown[]) => never;
  const read = (_id: number, _key: number, _version: number, { buffer }: Client.Reader) => fetchAnswerOf(buffer.slice());
  const request = (connection: Client.Connection, ...rest: readonly unknown[]): void => {
    const callback = rest.at(-1) as Client.CallbackWithPromise<unknown>;
    connection.send(key, version, () => create(...rest.slice(0, -1)), read, true, true, callback);
  };
  return Object.assign(request, { key, version }) as unknown as Client.API<Parameters<typeof fetchV13.createRequest>, FetchAnswer>;
}

/** The client library's own timeout would leave the connection open and deaf. Ours, see `ask`, ends it. */
const never = 2 ** 31 - 1;

export async function connect({ address, settings, clock, timeoutMs }: Dial, signal: AbortSignal): Promise<Connection> {
  const { client, requests } = await load();
  const { sasl, tls } = settings;
  const shown = written(address);
  const connection = new client.Connection("waybill", {
    connectTimeout: timeoutMs,
    requestTimeout: never,
    maxInflights: 1_000,
    ...(tls === null ? {} : { tls: { ...tls, rejectUnauthorized: true, minVersion: "TLSv1.2" } }),
    ...(sasl === null ? {} : { sasl: { mechanism: sasl.mechanism, username: sasl.user, password: sasl.password } }),
  });
  const ended = shared(new AbortController());
  /** How each ends when the connection does, and how many bytes its answer may have. */
  const underWay = new Map<(why: Error) => void, number>();
  const end = (why: Error): void => {
    if (ended.signal.aborted) return;
    ended.abort(why);
    for (const lose of underWay.keys()) lose(why);
    void connection.close(); // ends its timers, but would wait until everything is written to a broker that may read nothing any more
    connection.socket?.destroy();
  };
  const lost = (cause?: unknown): Error => unreachable(shown, cause);
  connection.on("error", (error) => end(lost(error)));
  connection.on("close", () => end(lost()));
  const awaited = createAwaited({ ref: () => connection.socket?.ref(), unref: () => connection.socket?.unref() });
  const ask = (name: RequestName, request: readonly unknown[], { extraMs = 0, messageBytes = 0 }: AnswerBounds = {}): Promise<unknown> =>
    new Promise((resolve, reject) => {
      if (ended.signal.aborted) return reject(asError(ended.signal.reason));
      const answered = new AbortController();
      const came = awaited.begin();
      const settle = (work: () => void): void => {
        underWay.delete(lose);
        answered.abort(over);
        came();
        work();
      };
      const lose = (why: Error): void => settle(() => reject(why));
      underWay.set(lose, plainBytes + messageBytes);
      void clock.sleep(timeoutMs + extraMs, answered.signal).then(() => {
        if (!answered.signal.aborted)
          end(new WaybillError("DESTINATION_UNAVAILABLE", `${shown} did not answer within ${timeoutMs + extraMs} ms`));
      });
      const send = requests[name] as (connection: Client.Connection, ...rest: readonly unknown[]) => void;
      let sent = false;
      send(connection, ...request, (error: (Error & { readonly response?: unknown }) | null, answer: unknown) => {
        // An answer with error codes in it is an answer.
        if (error === null || error.response !== undefined) return settle(() => resolve(error?.response ?? answer));
        // The answer could not be read, in the words of some buffer; or the request was never sent, or the client says why.
        const unread = sent && !(error as { readonly code?: unknown }).code?.toString().startsWith("PLT_KFK_");
        const why = unread ? wrongAnswer(shown, name, error) : lost(error);
        settle(() => reject(why));
        end(why);
      });
      sent = true;
    });

  /** From its first byte on, the socket's answers go through the framing to the client. */
  const guard = (socket: Socket | undefined, encrypted: boolean): void => {
    const most = (): number => Math.max(plainBytes, ...underWay.values());
    socket?.once(encrypted ? "secureConnect" : "connect", () => {
      const readers = socket.listeners("data") as ((answer: Buffer) => void)[];
      let answered = false;
      const take = createFraming(most, (answer) => {
        answered = true;
        readers.forEach((read) => read(answer));
      });
      socket.removeAllListeners("data").on("data", (chunk: Buffer) => {
        if (ended.signal.aborted) return;
        try {
          take(chunk);
        } catch (error) {
          const why = error instanceof WrongSize ? error.message : "answered in a way that cannot be read";
          const noBroker = `cannot be reached: it ${why}. Is it a Kafka broker, and does this port speak TLS (kafkas://)?`;
          end(new WaybillError("DESTINATION_UNAVAILABLE", `${shown} ${answered ? why : noBroker}`, { cause: error }));
        }
      });
    });
  };

  const calledOff = (): void => end(new WaybillError("STOPPED", `connecting to ${shown} was called off`));
  if (signal.aborted) calledOff();
  signal.addEventListener("abort", calledOff, { once: true });
  const late = new AbortController();
  // The client library's connect timeout does not cover everything that may hang.
  void clock.sleep(timeoutMs, late.signal).then(() => {
    if (!late.signal.aborted) end(new WaybillError("DESTINATION_UNAVAILABLE", `${shown} took no connection within ${timeoutMs} ms`));
  });
  try {
    ended.signal.throwIfAborted();
    const connecting = Promise.resolve(connection.connect(address.host, address.port)).catch((error: unknown) => end(lost(error)));
    guard(connection.socket, tls !== null);
    await Promise.race([
      connecting,
      new Promise<void>((resolve) => ended.signal.addEventListener("abort", () => resolve(), { once: true })),
    ]);
    ended.signal.throwIfAborted();
    checkVersions(shown, requests, (await ask("apiVersions", ["waybill", "1"])) as Versions);
  } catch (error) {
    end(asError(error));
    throw error;
  } finally {
    late.abort();
    signal.removeEventListener("abort", calledOff);
  }
  return { ask: ask as Connection["ask"], end, ended: ended.signal };
}

/** In the words of the deepest cause: the client library's own message says little. */
function unreachable(shown: string, cause: unknown): Error {
  if (isWaybillError(cause)) return cause;
  let deepest: unknown = cause;
  while (deepest instanceof Error && deepest.cause instanceof Error) deepest = deepest.cause;
  const first = deepest instanceof AggregateError ? ((deepest.errors as readonly unknown[])[0] ?? deepest) : deepest;
  const said = first as { readonly message?: string; readonly code?: string; readonly serverErrorMessage?: string | null } | undefined;
  const why = said?.serverErrorMessage || said?.message || said?.code || "the connection was closed";
  return new WaybillError("DESTINATION_UNAVAILABLE", `${shown} cannot be reached: ${why}`, cause === undefined ? {} : { cause });
}

async function load(): Promise<{ readonly client: typeof Client; readonly requests: Requests }> {
  const client = await loadClient("Kafka", "@platformatic/kafka", () => import("@platformatic/kafka"));
  const requests = requestsOf(client);
  const lacking = Object.entries(requests).flatMap(([name, request]) => (typeof request === "function" ? [] : [name]));
  if (lacking.length === 0 && typeof client.Connection === "function") return { client, requests };
  throw new WaybillError("DRIVER_UNFIT", `this version of @platformatic/kafka lacks ${lacking.join(", ")}: use 1.35 or 2.x`);
}
