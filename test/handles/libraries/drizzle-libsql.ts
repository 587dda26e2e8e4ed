import { fromDrizzle } from "../../../src/outbox/handles/index.ts";
import { adapter, type Adapter } from "../adapter.ts";
import type { Missing } from "../optional.ts";

/** As much of Drizzle's database and of its transaction as is used here: its driver's client is not in every checkout. */
interface Db {
  transaction<T>(work: (tx: Db) => Promise<T>): Promise<T>;
  run(sql: string): Promise<unknown>;
}

export async function drizzleOnLibsql(): Promise<Adapter | Missing> {
  const named = { library: "Drizzle (libsql)", database: "SQLite" } as const;
  let open: (path: string) => Db & { readonly $client: { close(): void } };
  try {
    const driver: string = "drizzle-orm/libsql";
    const { drizzle } = (await import(driver)) as { drizzle(options: object): ReturnType<typeof open> };
    open = (path) => drizzle({ connection: { url: `file:${path}` } });
  } catch (error) {
    return { ...named, why: (error as Error).message.split("\n")[0]! };
  }
  return adapter({
    ...named,
    handle: fromDrizzle,
    refuses: { none: true, ended: true },
    async open(path) {
      const db = open(path);
      return {
        db,
        none: { "the database": db },
        transaction: (work) => db.transaction(work),
        savepoint: (tx: Db, work) => tx.transaction(work),
        run: (tx: Db, sql) => tx.run(sql),
        close: async () => db.$client.close(),
      };
    },
  });
}
