import { systemDeadlines } from "../../core/deadlines.ts";
import { WaybillError } from "../../core/errors.ts";
import { persist } from "../../core/time.ts";

/** Which server, for messages, and how long its answer may take. */
export interface ServerPlace {
  readonly place: string;
  readonly patienceMs: number;
}

/** A pool whose connections are all in use must not keep anybody waiting for ever. One that comes too late is given back. */
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

/** What is opened when it is first needed, and again after it could not be opened. */
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

/** Runs work again from its start that lost against another's. */
export const again = <T>(work: () => Promise<T>, lost: (error: unknown) => boolean): Promise<T> =>
  persist(work, (error, tried) => (lost(error) && tried < attempts ? Promise.resolve() : null));
