import type { Store } from "../contracts/store.ts";
import { systemClock } from "../core/clock.ts";
import { checkOptions } from "../core/options.ts";
import { httpAddress, listen, type HttpOptions, type HttpServer, type HttpWords } from "./http.ts";
import type { Metrics } from "./metrics.ts";
import { recent } from "./recent.ts";

export interface PagesOptions {
  /** HOST:PORT, [IPv6]:PORT, or PORT alone, which means loopback. Port 0 takes a free one. */
  readonly address: string;
  /** Of 16 characters or more. `/metrics` asks for it; needed for an address that other machines can reach. @default none */
  readonly token?: string | null;
  readonly metrics: Metrics;
  /** Whose outbox `/metrics` shows, and whose answer `/readyz` waits for. @default none: counters only */
  readonly store?: Pick<Store<never>, "operator" | "leases">;
  /** Is your service at work? @default it is */
  ready?(): boolean | Promise<boolean>;
}

const known = ["address", "token", "metrics", "store", "ready"];

/** Serves /healthz, /readyz and /metrics, read-only. Rejects when the address cannot be used, or needs a token. */
export async function servePages(options: PagesOptions): Promise<HttpServer> {
  checkOptions("servePages", options, known);
  return openPages(options, { address: "address", token: "the option token" });
}

export const openPages = async (options: PagesOptions, words: HttpWords): Promise<HttpServer> =>
  listen({ address: httpAddress(options.address, words), token: options.token ?? null, ...pagesOf(options) }, words);

/** Many scrapers and probes must not become load on the store, and a slow answer does not mean that it is away. */
export function pagesOf({ store, metrics, ready = () => true }: Omit<PagesOptions, "address">): Pick<HttpOptions, "ready" | "metrics"> {
  if (store === undefined) return { ready: async () => ready(), metrics: async () => metrics.text() };
  const recency = { freshMs: 1_000, patienceMs: 700, staleMs: 10_000 };
  const status = recent(() => store.operator.status(), recency, systemClock);
  // Readiness asks for the lanes only: it must not depend on how many events there are.
  const lanes = recent(() => store.leases.look(), recency, systemClock);
  return {
    ready: async () => (await ready()) && (await lanes()).lanes.length > 0,
    metrics: async () => metrics.text(await status().catch(() => null)),
  };
}
