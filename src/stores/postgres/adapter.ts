import type { Ask, StoreAdapter } from "../../contracts/adapter.ts";
import { beside, end, guardedBySslmode, serverUrl } from "../kit/describe.ts";
import { later } from "../kit/pool.ts";
import { openPool, type PgClient } from "./driver.ts";
import { rules } from "./examine.ts";
import { postgres } from "./index.ts";
import { starter } from "./starter.ts";
import { onClient } from "./pool.ts";

const runPool = { connections: 4, connectTimeoutMs: 5_000 };

export const postgresAdapter: StoreAdapter = {
  name: "PostgreSQL",
  schemes: ["postgres", "postgresql"],
  example: "postgres://user:password@host:5432/database",
  server: { port: 5432, ...guardedBySslmode("PGSSLMODE") },
  rules,
  starter,
  logUrl: "the server itself, for a relay that reads its log while --store leads to a pooler",
  open(given, _, { logUrl, ...placing }) {
    const url = serverUrl(given);
    const log = logUrl === undefined ? {} : { logUrl: serverUrl(logUrl) };
    const pool = later(() => openPool({ url, connections: 1, connectTimeoutMs: 10_000 }), end);
    // A locked table must not keep the command waiting forever.
    return beside(postgres({ url, ...log, ...placing }), pool, (tx) => tx.query("SET LOCAL lock_timeout = '10s'"));
  },
  /** A schema of the run's own. */
  openRun(given, run, placing = {}) {
    const url = serverUrl(given);
    // A server that has gone silent must not keep a run waiting.
    const store = postgres({ url, ...placing, schema: run, ...runPool, statementTimeoutMs: 10_000 });
    const pool = later(() => openPool({ url, ...runPool }), end);
    const at = { place: "the PostgreSQL database", patienceMs: 60_000 };
    const once = async <T>(work: (ask: Ask) => Promise<T>): Promise<T> =>
      onClient(
        await pool.get(),
        at,
        async (client) => {
          await client.query("SET statement_timeout = 60000");
          return work(within(client));
        },
        () => true,
      );
    return {
      ...beside(store, pool, (tx) => tx.query("SET LOCAL statement_timeout = 10000")),
      dialect: { key: "text", position: "position bigserial PRIMARY KEY" },
      within,
      ask: (sql, values) => once((ask) => ask(sql, values)),
      table: (name) => `"${run}".${name}`,
      remove: () =>
        once(async (ask) => {
          await ask("SET lock_timeout = 10000");
          await ask(`DROP SCHEMA IF EXISTS "${run}" CASCADE`);
        }),
    };
  },
};

function within(tx: unknown): Ask {
  const client = tx as PgClient;
  return async (sql, values = []) => {
    let nth = 0;
    const numbered = sql.replaceAll("?", () => `$${(nth += 1)}`);
    return (await client.query(numbered, [...values])).rows;
  };
}
