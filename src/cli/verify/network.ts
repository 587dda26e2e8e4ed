import { startTcpProxy, type Direction, type Target, type TcpProxy } from "./tcp-proxy.ts";

/** A network of ours between the workers and a server. */
export interface Network extends AsyncDisposable {
  /** The server's URL by way of it. */
  readonly url: string;
  readonly proxy: TcpProxy;
}

const ports: Readonly<Record<string, number>> = {
  postgres: 5432,
  postgresql: 5432,
  mysql: 3306,
  mariadb: 3306,
  amqp: 5672,
  nats: 4222,
  redis: 6379,
};

/** A network before the server, or why there can be none. */
export async function openNetwork(url: string): Promise<Network | string> {
  const target = targetOf(url);
  if (typeof target === "string") return target;
  const proxy = await startTcpProxy(target);
  return {
    url: withTarget(url, `127.0.0.1:${proxy.port}`),
    proxy,
    [Symbol.asyncDispose]: () => proxy[Symbol.asyncDispose](),
  };
}

export function targetOf(url: string): Target | string {
  const scheme = /^[a-z]+/i.exec(url)?.[0].toLowerCase() ?? "";
  if (scheme === "sqlite" || scheme === "embedded") return "a file is reached over no network";
  if (scheme.startsWith("kafka")) return "Kafka tells its clients where its brokers are, past any network in between";
  const port = Object.hasOwn(ports, scheme) ? ports[scheme] : undefined;
  if (port === undefined || /[?&]ssl(mode=(?!disable)|rootcert=)/i.test(url))
    return "the server's certificate is not that of a network in between";
  const place = placeOf(url);
  if (place.includes(",")) return "there is more than one server";
  const [, name, bracketed, given] = /^(?:\[([^\]]+)\]|([^:]*))(?::(\d+))?$/.exec(place) ?? [];
  const host = name ?? bracketed ?? "";
  return host === "" ? "the URL names no host" : { host, port: given === undefined ? port : Number(given) };
}

/** Whoever connects ends at the last @ before the path, as for the adapters and in secrets.ts. */
const authority = /^([a-z]+:\/\/(?:[^/?#]*@)?)([^/?#]*)/i;
const placeOf = (url: string): string => authority.exec(url)?.[2] ?? "";
const withTarget = (url: string, place: string): string => url.replace(authority, (_, before: string) => `${before}${place}`);

/** What may befall a network, for a while. */
export type Trouble = "latency" | "black hole" | "cut" | "reset";

export function trouble({ proxy }: Network, what: Trouble, size: number): void {
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
