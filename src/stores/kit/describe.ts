import type { OpenedStore, Server } from "../../contracts/adapter.ts";
import type { Store } from "../../contracts/store.ts";
import { refuseUrl, type Url } from "../../core/url.ts";
import type { Later } from "./pool.ts";

/** Without a host or database in the URL, the client library would use its own defaults and write into the wrong database. */
export function serverUrl(url: Url): string {
  const example = `write it as ${url.scheme}://user:password@host/database`;
  if (!URL.canParse(url.text)) return refuseUrl(url, `is not a URL: ${example}`);
  const { hostname, pathname } = new URL(url.text);
  if (hostname === "") return refuseUrl(url, `names no host: ${example}`);
  if (pathname.length < 2) return refuseUrl(url, `names no database: ${example}`);
  return url.text;
}

/** Reads the URL's sslmode and sslrootcert. Without them it reads the environment variable `variable`, as the client library does. */
export const guardedBySslmode = (variable?: string): Pick<Server, "remedy" | "guard"> => ({
  remedy: "add sslmode=verify-full to the URL",
  guard(url, env) {
    const search = new URLSearchParams(/\?([^#]*)/.exec(url)?.[1] ?? "");
    const otherwise = variable === undefined ? undefined : env[variable];
    const mode = search.get("sslmode") ?? (search.has("sslrootcert") ? "verify-full" : otherwise);
    if (mode === "no-verify") return "unverified";
    return mode !== undefined && ["prefer", "require", "verify-ca", "verify-full"].includes(mode) ? "verified" : "none";
  },
});

export const end = (pool: { end(): Promise<void> }): Promise<void> => pool.end();

/** A store together with a service's `db`. `begun` runs first in each transaction. */
export function beside<Db, Tx>(store: Store<Db, Tx>, db: Later<Db>, begun?: (tx: Tx) => Promise<unknown>): OpenedStore {
  return {
    store: store as unknown as Store<never, never>,
    transaction: async (work) =>
      store.transactor.transaction(await db.get(), async (tx) => {
        await begun?.(tx);
        return work(tx as never);
      }),
    async [Symbol.asyncDispose]() {
      await db.close();
      await store[Symbol.asyncDispose]();
    },
  };
}
