import { causesOf } from "../../core/causes.ts";
import { systemDeadlines } from "../../core/deadlines.ts";
import { WaybillError } from "../../core/errors.ts";
import { persist } from "../../core/time.ts";

/** The server's name for messages, and how long its answer may take. */
export interface ServerPlace {
  readonly place: string;
  readonly patienceMs: number;
}

/** Bounds the wait for a pool whose connections are all in use. A connection that comes too late is given back. */
export async function acquired<C>(
  coming: Promise<C>,
  { place, patienceMs }: ServerPlace,
  limit: string,
  explain: (error: unknown, place: string) => Error,
  giveBack: (late: C) => void,
): Promise<C> {
  const connection = await systemDeadlines.within(patienceMs, coming).catch((error: unknown) => {
    throw explain(error, place);
  });
  if (connection !== null) return connection;
  coming.then(giveBack, () => undefined);
  throw new WaybillError("STORE_UNAVAILABLE", `no connection to ${place} became free within ${patienceMs} ms: raise the pool's ${limit}`);
}

/** For an error on the way to a server: no wait mends a host that no name server knows, or a certificate that is not trusted. */
export function mending(error: unknown): { readonly retryable?: false } {
  const wrong = causesOf(error).some((cause) =>
    /^(ENOTFOUND|.*CERT.*|UNABLE_TO_VERIFY_.*)$/.test(String((cause as { code?: unknown }).code)),
  );
  return wrong ? { retryable: false } : {};
}

/** Opens on first use. After a failure, the next use opens it again. */
export interface Later<T> {
  get(): Promise<T>;
  close(): Promise<void>;
}

export function later<T>(open: () => Promise<T>, close: (opened: T) => void | Promise<void>): Later<T> {
  let opened: Promise<T> | null = null;
  return {
    get: () =>
      (opened ??= open().catch((error: unknown) => {
        opened = null;
        throw error;
      })),
    close: async () => opened?.then(close, () => undefined),
  };
}

const attempts = 5;

/** Reruns work from its start when it lost a conflict with another transaction. */
export const again = <T>(work: () => Promise<T>, lost: (error: unknown) => boolean): Promise<T> =>
  persist(work, (error, tried) => (lost(error) && tried < attempts ? Promise.resolve() : null));
