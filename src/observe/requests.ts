import { type Socket } from "node:net";
import { systemClock } from "../core/clock.ts";

/** The only request of a connection: its line and its headers, by their names in lower case. */
export interface PageRequest {
  readonly method: string;
  readonly path: string;
  readonly headers: ReadonlyMap<string, string>;
}

export interface PageAnswer {
  readonly status: number;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
}

const most = 8 * 1024;
const tooLong = Symbol("more bytes than a request may have");
const readMs = 5_000;
/** How long a client may take to take its answer. */
const takenMs = 5_000;
const end = Buffer.from("\r\n\r\n");

const reasons: Readonly<Record<number, string>> = {
  200: "OK",
  400: "Bad Request",
  401: "Unauthorized",
  404: "Not Found",
  405: "Method Not Allowed",
  421: "Misdirected Request",
  431: "Request Header Fields Too Large",
  500: "Internal Server Error",
  503: "Service Unavailable",
};

/** What one connection has in the room that all share. */
export interface Place {
  /** The client has asked. It is no longer idle. */
  busy(): void;
  /** Whether there is room for so many bytes of answers that are not taken yet. */
  holds(bytes: number): boolean;
  /** It has taken its answer. */
  idle(): void;
}

/**
 * Reads one request, writes one answer and ends the connection. What a client sends after its first request is not parsed: thousands of
 * requests fit into one packet, and node:http would parse all of them at once, while nothing else in the process runs.
 */
export async function serveOne(socket: Socket, place: Place, answer: (request: PageRequest) => Promise<PageAnswer>): Promise<void> {
  const closed = new AbortController();
  socket.once("close", () => closed.abort());
  const endAfter = (ms: number, called: AbortSignal): void =>
    void systemClock.sleep(ms, called).then(() => called.aborted || socket.destroy());

  const read = new AbortController();
  endAfter(readMs, AbortSignal.any([closed.signal, read.signal]));
  const head = await headOf(socket);
  read.abort();
  if (head === null) return;
  place.busy();
  const request = head === tooLong ? 431 : parse(head);
  const given = typeof request === "number" ? { status: request, body: "this request is not understood\n" } : await answer(request);
  const bytes = bytesOf(given, typeof request !== "number" && request.method === "HEAD");
  endAfter(takenMs, closed.signal);
  socket.once("finish", () => place.idle());
  socket.end(place.holds(bytes.length) ? bytes : bytesOf({ status: 503, body: "too many answers wait to be taken\n" }, false));
  discard(socket);
}

function bytesOf({ status, body, headers = {} }: PageAnswer, withoutBody: boolean): Buffer {
  const lines = {
    date: new Date(systemClock.now()).toUTCString(),
    connection: "close",
    "content-type": "text/plain; charset=utf-8",
    "content-length": String(Buffer.byteLength(body)),
    "cache-control": "no-store",
    "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
    "x-content-type-options": "nosniff",
    ...headers,
  };
  const text = Object.entries(lines).map(([name, value]) => `${name}: ${value}\r\n`);
  return Buffer.from(`HTTP/1.1 ${status} ${reasons[status]!}\r\n${text.join("")}\r\n${withoutBody ? "" : body}`);
}

/** Null when the client has gone before it had said what it wants. */
function headOf(socket: Socket): Promise<string | typeof tooLong | null> {
  return new Promise((resolve) => {
    let bytes = Buffer.alloc(0);
    const done = (head: string | typeof tooLong | null): void => {
      socket.off("data", take).pause();
      resolve(head);
    };
    const take = (more: Buffer): void => {
      bytes = Buffer.concat([bytes, more.subarray(0, most + end.length - bytes.length)]);
      const at = bytes.indexOf(end);
      if (at >= 0) done(bytes.toString("latin1", 0, at));
      else if (bytes.length > most) done(tooLong);
    };
    socket.on("data", take);
    socket.once("end", () => (done(null), socket.destroy()));
    socket.once("close", () => resolve(null));
  });
}

/** A close with bytes unread resets the connection, and the client may then lose the answer. So a little more is read, and thrown away. */
function discard(socket: Socket): void {
  let left = 64 * 1024;
  socket.on("data", (more: Buffer) => {
    left -= more.length;
    if (left < 0) socket.pause();
  });
  socket.resume();
}

/** A status where the request is none. */
function parse(head: string): PageRequest | 400 {
  const [first = "", ...lines] = head.split("\r\n");
  const [, method, path] = /^([A-Z]{1,16}) (\S+) HTTP\/1\.[01]$/.exec(first) ?? [];
  if (method === undefined || path === undefined) return 400;
  const headers = new Map<string, string>();
  for (const line of lines) {
    const [, name, rest] = /^([!#$%&'*+\-.^_`|~\w]+):(.*)$/.exec(line) ?? [];
    if (name === undefined || rest === undefined) return 400;
    const key = name.toLowerCase();
    if (headers.has(key) && ["host", "authorization"].includes(key)) return 400;
    headers.set(key, trimmed(rest));
  }
  return { method, path, headers };
}

/** Without the blanks and tabs around it. An expression with blanks on both sides would take cubic time for a line full of them. */
function trimmed(text: string): string {
  const blank = (at: number): boolean => text[at] === " " || text[at] === "\t";
  let [from, to] = [0, text.length];
  while (from < to && blank(from)) from++;
  while (to > from && blank(to - 1)) to--;
  return text.slice(from, to);
}
