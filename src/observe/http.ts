import { createHash, timingSafeEqual } from "node:crypto";
import { createServer, type IncomingMessage, type ServerResponse } from "node:http";
import { isIP, type Socket } from "node:net";
import { hostname } from "node:os";
import { asError, WaybillError } from "../core/errors.ts";
import { isLoopback } from "../core/loopback.ts";

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

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers?: Readonly<Record<string, string>>;
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
  const server = createServer(
    {
      maxHeaderSize: 8 * 1024,
      requestTimeout: 5_000,
      headersTimeout: 5_000,
      keepAliveTimeout: 5_000,
      connectionsCheckingInterval: 1_000, // Node's default is to check these limits every 30 s only
    },
    (request, response) => {
      room.busy(request.socket, response);
      void answer(request, options).then(({ status, body, headers }) => {
        response.writeHead(status, {
          "content-type": "text/plain; charset=utf-8",
          "cache-control": "no-store",
          "content-security-policy": "default-src 'none'; frame-ancestors 'none'",
          "x-content-type-options": "nosniff",
          ...headers,
        });
        response.end(body);
      });
    },
  );
  server.on("connection", room.enter);
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
      server.closeAllConnections();
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

/** Idle connections must not keep the probes out: beyond the limit, a new connection closes the one that has been idle longest. */
function createRoom(): { enter(socket: Socket): void; busy(socket: Socket, response: ServerResponse): void } {
  const silent = new Set<Socket>();
  let open = 0;
  return {
    enter(socket) {
      open++;
      silent.add(socket);
      socket.once("close", () => {
        open--;
        silent.delete(socket);
      });
      if (open <= mostConnections) return;
      const [longest] = silent;
      longest?.destroy();
    },
    busy(socket, response) {
      silent.delete(socket);
      response.once("close", () => {
        if (!socket.destroyed) silent.add(socket);
      });
    },
  };
}

async function answer(request: IncomingMessage, options: HttpOptions): Promise<Answer> {
  const known = options.token !== null && carries(request, options.token);
  // A page of another site may reach loopback under its own host name (DNS rebinding), but cannot know the token.
  if (!known && !hostAllowed(request.headers.host, options.address.host))
    return { status: 421, body: "this host name is not served here\n" };
  if (request.method !== "GET") return { status: 405, body: "only GET\n", headers: { allow: "GET" } };
  try {
    const [path = ""] = (request.url ?? "").split("?");
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

function carries(request: IncomingMessage, token: string): boolean {
  const [, given] = /^Bearer +(\S+) *$/i.exec(request.headers.authorization ?? "") ?? [];
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
