import type { ConsumerState, Watched } from "../contracts/consumers.ts";
import type { Source } from "../contracts/source.ts";
import type { Store } from "../contracts/store.ts";
import { systemClock } from "../core/clock.ts";
import { isWaybillError } from "../core/errors.ts";
import type { Service } from "../core/service.ts";
import { checkOptions } from "../core/options.ts";
import { httpAddress, listen, type HttpOptions, type HttpServer, type HttpWords } from "./http.ts";
import type { LookedAt } from "./consumer-gauges.ts";
import { knownConsumers, withLags, type ConsumerTopics } from "./known.ts";
import type { Metrics } from "./metrics.ts";
import { recent } from "./recent.ts";

export interface PagesOptions {
  /** HOST:PORT, [IPv6]:PORT, or PORT alone, which means loopback. Port 0 takes a free one. */
  readonly address: string;
  /** At least 16 characters. `/metrics` asks for it. Required for an address that other machines can reach. @default none */
  readonly token?: string | null;
  readonly metrics: Metrics;
  /** The store whose outbox `/metrics` shows, and whose answer `/readyz` waits for. @default none: counters only */
  readonly store?: Pick<Store<never>, "operator" | "leases" | "tail">;
  /** The subscribers' database. `/metrics` shows its letters and retries, and which consumers run. @default none */
  readonly inbox?: Pick<Store<never>, "consumers">;
  /**
   * The broker. `/metrics` then shows how far the consumers of `inbox` and of `consumers` are behind, whether or not a process of them
   * runs, and asks the broker every 15 seconds at most: for the page of a relay. @default none
   */
  readonly broker?: Pick<Source, "name" | "connect" | "lag">;
  /** Consumers whose inboxes are in other databases, and their topics: for `broker`. @default none */
  readonly consumers?: ConsumerTopics;
  /**
   * The relays and subscribers of this process. `/readyz` answers 503 while one of them is not running, or is draining. `/metrics` shows
   * how far a subscriber is behind, and asks its broker every 15 seconds at most. @default none
   */
  readonly services?: readonly (Pick<Service, "isRunning"> & Partial<Watched>)[];
  /** Whether your service is ready. @default it is */
  ready?(): boolean | Promise<boolean>;
}

const known = [
  "address",
  "token",
  "metrics",
  "store",
  "inbox",
  "broker",
  "consumers",
  "services",
  "ready",
] satisfies (keyof PagesOptions)[];

/** Serves /healthz, /readyz and /metrics, read-only. Rejects when the address cannot be used, or needs a token. */
export async function servePages(options: PagesOptions): Promise<HttpServer> {
  checkOptions("servePages", options, known);
  return openPages(options, { address: "address", token: "the option token" });
}

export const openPages = async (options: PagesOptions, words: HttpWords): Promise<HttpServer> =>
  listen({ address: httpAddress(options.address, words), token: options.token ?? null, ...pagesOf(options) }, words);

/** Answers are shared: many scrapers and probes must not load the store. A slow answer does not mean that the store is down. */
export function pagesOf({
  store,
  inbox,
  broker,
  consumers: named = {},
  services = [],
  metrics,
  ready,
}: Omit<PagesOptions, "address">): Pick<HttpOptions, "ready" | "metrics"> {
  const recency = { freshMs: 1_000, patienceMs: 700, staleMs: 10_000 };
  const asked = <T>(ask: () => Promise<T>, more = {}): (() => Promise<T>) => recent(ask, { ...recency, ...more }, systemClock);
  const status = store === undefined ? null : asked(() => store.operator.status());
  // Readiness asks for the lanes only: it must not depend on how many events there are.
  const lanes = store === undefined ? null : asked(() => store.leases.look());
  const tailer = store?.tail?.tailer;
  const log = tailer === undefined ? null : asked(() => tailer.look(), { freshMs: 10_000, staleMs: 60_000 });
  const consumers = inbox === undefined ? null : asked(() => inbox.consumers.look(), { freshMs: 10_000, staleMs: 60_000 });
  const lags =
    broker === undefined
      ? null
      : asked(async () => withLags(knownConsumers((await inbox?.consumers.look().catch(() => [])) ?? [], named), broker), {
          ...{ freshMs: 15_000, staleMs: 60_000 },
        });
  const looks = services.flatMap((service) =>
    service.consumer === undefined || service.look === undefined
      ? []
      : [{ consumer: service.consumer, look: asked(() => service.look!(), { freshMs: 15_000, staleMs: 60_000 }) }],
  );
  const looked = (): Promise<readonly LookedAt[]> =>
    Promise.all(looks.map(async ({ consumer, look }) => ({ consumer, topics: await look().catch(() => null) })));
  const orNull = async <T>(answer: (() => Promise<T>) | null): Promise<T | null | undefined> =>
    answer === null ? undefined : answer().catch(() => null);
  /** A relay's role need not be allowed to read the inbox: that does not mean that its database is down. */
  const orUnread = (): Promise<readonly ConsumerState[] | null | undefined> =>
    consumers === null
      ? Promise.resolve(undefined)
      : consumers().catch((error: unknown) => (isWaybillError(error, "STORE_READ_ONLY") ? undefined : null));
  return {
    ready: async () =>
      services.every((service) => service.isRunning()) &&
      (ready === undefined || (await ready())) &&
      (lanes === null || (await lanes()).lanes.length > 0),
    metrics: async () =>
      metrics.text(...(await Promise.all([orNull(status), orUnread(), looked(), lags?.().catch(() => []), orNull(log)]))),
  };
}
