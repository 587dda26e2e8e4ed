import type { Added, Draft } from "../core/event.ts";
import { createOutbox } from "../outbox/outbox.ts";
import { openPool as openMysqlPool } from "../stores/mysql/driver.ts";
import { mysql } from "../stores/mysql/index.ts";
import { openPool as openPostgresPool } from "../stores/postgres/driver.ts";
import { postgres, type PartitionUnit } from "../stores/postgres/index.ts";
import type { OpenedStore } from "./opened.ts";
import { refuseUrl, type Url } from "./url.ts";

/** Where in the database the tables are, and how they keep events; from the configuration file. */
export interface Placing {
  readonly schema?: string;
  readonly names?: Readonly<Record<string, string>>;
  readonly partitions?: PartitionUnit;
  readonly onPublish?: "keep" | "delete";
}

export function openPostgres(url: Url, placing: Placing): OpenedStore {
  const store = postgres({ url: checkedUrl(url), ...placing });
  return opened(store, "this version cannot follow PostgreSQL's log: use --mode poll", async (drafts) => {
    const pool = await openPostgresPool(oneConnection(url));
    const outbox = createOutbox({ store });
    const added = store.transactor.transaction(pool, async (tx) => {
      await tx.query("SET LOCAL lock_timeout = '10s'"); // a table that somebody has locked must not keep the command waiting for ever
      return outbox.add(tx, drafts);
    });
    return added.finally(() => pool.end());
  });
}

export function openMysql(url: Url, placing: Placing): OpenedStore {
  const text = checkedUrl(url).replace(/^mariadb:/i, "mysql:");
  const store = mysql({ url: text, ...placing });
  return opened(store, "this version cannot follow the binary log: use --mode poll", async (drafts) => {
    const pool = await openMysqlPool(oneConnection({ ...url, text }));
    const outbox = createOutbox({ store });
    return store.transactor.transaction(pool, (tx) => outbox.add(tx, drafts)).finally(() => pool.end());
  });
}

const oneConnection = (url: Url): { readonly url: string; readonly connections: 1; readonly connectTimeoutMs: number } => ({
  url: url.text,
  connections: 1,
  connectTimeoutMs: 10_000,
});

function opened(
  store: OpenedStore["store"] & AsyncDisposable,
  noTail: string,
  add: (drafts: readonly Draft[]) => Promise<readonly Added[]>,
): OpenedStore {
  return { store, noTail, add, [Symbol.asyncDispose]: () => store[Symbol.asyncDispose]() };
}

/** A client would take what is missing from its own defaults, and write into another database than was meant. */
export function checkedUrl(url: Url): string {
  let parsed: URL;
  try {
    parsed = new URL(url.text);
  } catch {
    return refuseUrl(url, `is not a URL: write it as ${url.scheme}://user:password@host/database`);
  }
  if (parsed.hostname === "") return refuseUrl(url, `names no host: write it as ${url.scheme}://user:password@host/database`);
  if (parsed.pathname.length < 2) return refuseUrl(url, `names no database: write it as ${url.scheme}://user:password@host/database`);
  return url.text;
}
