import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, isIP, type Socket } from "node:net";
import { hostname } from "node:os";
import { asError, WaybillError } from "../core/errors.ts";
import { isLoopback } from "../core/loopback.ts";
import { serveOne, type PageAnswer, type PageRequest, type Place } from "./requests.ts";

interface HttpAddress {
  readonly host: string;
  readonly port: number;
}

/** How errors name the address and the token: as flags of a command, or as options. */
export interface HttpWords {
  readonly address: string;
  readonly token: string;
}

export interface HttpOptions {
  readonly address: HttpAddress;
  /** `/metrics` asks for it. Required when other machines can connect. */
  readonly token: string | null;
  /** Whether the service is running. A rejection counts as no. */
  ready(): Promise<boolean>;
  metrics(): Promise<string>;
}

/** Disposing it closes it. */
export interface HttpServer extends AsyncDisposable {
  /** With the port that the server listens on. */
  readonly url: string;
}

const leastTokenLength = 16;

/** HOST:PORT, [IPv6]:PORT, or PORT alone, which means loopback. */
export function httpAddress(text: string, words: HttpWords): HttpAddress {
  const [, host = "127.0.0.1", digits = ""] = /^(?:(\[[0-9a-f:.%]+\]|[^:[\]/@\s]+)?:)?(\d{1,5})$/i.exec(text) ?? [];
  const port = digits === "" ? Number.NaN : Number(digits);
  if (!(port <= 65_535))
    throw new WaybillError("INVALID_OPTION", `${words.address} must be HOST:PORT such as 127.0.0.1:9464, not ${JSON.stringify(text)}`);
  return { host: host.replace(/^\[|\]$/g, ""), port };
}

/** Read-only and small: no page changes anything, and only GET is answered. */
export async function listen(options: HttpOptions, words: HttpWords): Promise<HttpServer> {
  const { address, token } = options;
  const shown = `${address.host.includes(":") ? `[${address.host}]` : address.host}:${address.port}`;
  if (token !== null && token.length < leastTokenLength) {
    throw new WaybillError("INVALID_OPTION", `the HTTP token must have ${leastTokenLength} characters or more`);
  }
  if (token === null && !isLoopback(address.host)) throw exposed(shown, words);

  const room = createRoom();
  const server = createServer((socket) => {
    socket.on("error", () => undefined); // the client's; the connection closes
    void serveOne(socket, room.enter(socket), (request) => answer(request, options)).catch(() => socket.destroy());
  });
  await new Promise<void>((resolve, reject) => {
    // The listener stays: a later error, such as a connection that cannot be accepted, must not end the service.
    server.on("error", (cause) =>
      reject(new WaybillError("INVALID_OPTION", `${words.address} ${shown} cannot be used: ${cause.message}`, { cause })),
    );
    server.listen(address.port, address.host, resolve);
  });
  const bound = server.address();
  const close = (): Promise<void> =>
    new Promise((resolve) => {
      server.close(() => resolve());
      room.empty();
    });
  // A name such as localhost may resolve to another address.
  if (typeof bound !== "object" || bound === null || (token === null && !isLoopback(bound.address))) {
    await close();
    throw exposed(shown, words);
  }
  const name = bound.family === "IPv6" ? `[${bound.address}]` : bound.address;
  return { url: `http://${name}:${bound.port}`, [Symbol.asyncDispose]: close };
}

const mostConnections = 64;
/** Of answers that were made and not taken. */
const mostBytes = 16 * 1024 * 1024;

/**
 * Idle connections must not keep the probes out: beyond the limit, a new connection closes the one that has been idle longest. If all are
 * busy, the new one is closed.
 */
function createRoom(): { enter(socket: Socket): Place; empty(): void } {
  const all = new Set<Socket>();
  const idle = new Set<Socket>();
  const held = new Map<Socket, number>();
  return {
    enter(socket) {
      all.add(socket);
      idle.add(socket);
      socket.once("close", () => {
        for (const place of [all, idle, held]) place.delete(socket);
      });
      const [longest] = idle;
      if (all.size > mostConnections) (longest ?? socket).destroy();
      return {
        busy: () => void idle.delete(socket),
        holds(bytes) {
          const others = [...held.values()].reduce((sum, more) => sum + more, 0);
          if (others > 0 && others + bytes > mostBytes) return false; // one answer passes whatever its size
          held.set(socket, bytes);
          return true;
        },
        idle() {
          held.delete(socket);
          if (!socket.destroyed) idle.add(socket);
        },
      };
    },
    empty() {
      for (const socket of all) socket.destroy();
    },
  };
}

async function answer(request: PageRequest, options: HttpOptions): Promise<PageAnswer> {
  const known = options.token !== null && carries(request, options.token);
  // A page of another site may reach loopback under its own host name (DNS rebinding), but cannot know the token.
  if (!known && !hostAllowed(request.headers.get("host"), options.address.host))
    return { status: 421, body: "this host name is not served here\n" };
  if (request.method !== "GET") return { status: 405, body: "only GET\n", headers: { allow: "GET" } };
  try {
    const [path = ""] = request.path.split("?");
    switch (path) {
      case "/healthz":
        return { status: 200, body: "ok\n" };
      case "/readyz":
        return (await options.ready().catch(() => false)) ? { status: 200, body: "ready\n" } : { status: 503, body: "not ready\n" };
      case "/metrics":
        if (options.token !== null && !known)
          return { status: 401, body: "a token is needed\n", headers: { "www-authenticate": "Bearer" } };
        return { status: 200, body: await options.metrics(), headers: { "content-type": "text/plain; version=0.0.4; charset=utf-8" } };
      default:
        return { status: 404, body: "there are /healthz, /readyz and /metrics\n" };
    }
  } catch (error) {
    return { status: 500, body: `${asError(error).name}\n` };
  }
}

function carries(request: PageRequest, token: string): boolean {
  const [, given] = /^Bearer +(\S+) *$/i.exec(request.headers.get("authorization") ?? "") ?? [];
  const digest = (text: string): Buffer => createHash("sha256").update(text).digest();
  return given !== undefined && timingSafeEqual(digest(given), digest(token));
}

/** Is this Host header allowed? A page of another site can make its own host name resolve to this machine. */
export function hostAllowed(header: string | undefined, bound: string): boolean {
  const [, host = ""] = /^(\[[^\]]*\]|[^:]*)(?::\d*)?$/.exec(header ?? "") ?? [];
  const name = host.replace(/^\[|\]$/g, "").toLowerCase();
  if (name === "localhost" || name === bound.toLowerCase() || isLoopback(name)) return true;
  return !isLoopback(bound) && (isIP(name) !== 0 || name === hostname().toLowerCase());
}

function exposed(shown: string, { address, token }: HttpWords): WaybillError {
  return new WaybillError(
    "INVALID_OPTION",
    `${address} ${shown} can be reached from other machines and needs a token: give ${token}, or bind 127.0.0.1`,
  );
}
