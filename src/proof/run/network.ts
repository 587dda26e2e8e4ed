import type { Server } from "../../contracts/adapter.ts";
import { startTcpProxy, type Direction, type Target, type TcpProxy } from "./tcp-proxy.ts";

/** A proxy that can break the network between the workers and a server. */
export interface Network extends AsyncDisposable {
  /** The server's URL through the proxy. */
  readonly url: string;
  readonly proxy: TcpProxy;
}

/** A network in front of the server, or the reason why there can be none. */
export async function openNetwork(url: string, server: Server | null): Promise<Network | string> {
  const target = targetOf(url, server);
  if (typeof target === "string") return target;
  const proxy = await startTcpProxy(target);
  return {
    url: withTarget(url, `127.0.0.1:${proxy.port}`),
    proxy,
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  };
}

export function targetOf(url: string, server: Server | null): Target | string {
  if (server === null) return "a file is reached over no network";
  const { port } = server;
  if (typeof port === "string") return port;
  if (server.guard(url, {}) !== "none") return "the server's certificate is not that of a network in between";
  const place = placeOf(url);
  if (place.includes(",")) return "there is more than one server";
  const [, name, bracketed, given] = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d+))?$/.exec(place) ?? [];
  const host = name ?? bracketed ?? "";
  return host === "" ? "the URL names no host" : { host, port: given === undefined ? port : Number(given) };
}

/** A login ends at the last "@" before the path, as in the adapters and in secrets.ts. */
const authority = /^([a-z]+:\/\/(?:[^/?#]*@)?)([^/?#]*)/i;
const placeOf = (url: string): string => authority.exec(url)?.[2] ?? "";
const withTarget = (url: string, place: string): string => url.replace(authority, (_, before: string) => `${before}${place}`);

/** A temporary fault of a network. */
export type NetworkTrouble = "latency" | "black hole" | "cut" | "reset";

export function trouble({ proxy }: Network, what: NetworkTrouble, size: number): void {
  const both: readonly Direction[] = ["up", "down"];
  switch (what) {
    case "latency":
      return both.forEach((direction) => proxy.fault(direction, { latencyMs: 20 + size * 180 }));
    case "black hole":
      return both.forEach((direction) => proxy.fault(direction, { hold: true }));
    case "cut":
      return proxy.fault(size < 0.5 ? "up" : "down", { cutAfter: Math.round(500 + size * 40_000) });
    case "reset":
      return proxy.reset();
  }
}
