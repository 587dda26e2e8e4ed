import { existsSync, mkdirSync, mkdtempSync, readdirSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join, resolve } from "node:path";
import { embedded } from "../brokers/embedded/index.ts";
import type { Clock } from "../core/clock.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { createConnection } from "../drivers/sqlite/connection.ts";
import { sqlite } from "../stores/sqlite/index.ts";
import { shopFiles, subscriberNames, topic } from "./shop.ts";
import { orderTables, subscriberTables } from "./tables.ts";

interface DataFolder extends AsyncDisposable {
  readonly path: string;
}

/** A new folder that is deleted with the run, or the one that was named, which stays. */
export function dataFolder(named: string | undefined): DataFolder {
  if (named === undefined) {
    const path = mkdtempSync(join(tmpdir(), "waybill-dev-"));
    const remove = { recursive: true, force: true, maxRetries: 5 };
    return { path, [Symbol.asyncDispose]: async () => rmSync(path, remove) };
  }
  const path = resolve(named);
  try {
    if (!existsSync(path)) mkdirSync(path);
    // A shop continues where it stopped. Any other file in the folder belongs to the user.
    if (!existsSync(shopFiles(path).orders) && readdirSync(path).length > 0) throw new Error("it is not empty, and no shop is in it");
  } catch (cause) {
    throw new WaybillError("INVALID_OPTION", `--data ${named} cannot be used: ${asError(cause).message}`, { cause });
  }
  return { path, [Symbol.asyncDispose]: () => Promise.resolve() };
}

/** Creates what is missing in the databases. Returns the function that records the end of the run. */
export async function prepare(
  folder: string,
  { naive, relays }: { readonly naive: boolean; readonly relays: number },
  clock: Clock,
): Promise<() => Promise<void>> {
  const files = shopFiles(folder);
  rmSync(files.stopped, { force: true });
  await using broker = embedded({ path: files.broker });
  await broker.provision([topic]);
  for (const name of subscriberNames) await withTables(files[name], subscriberTables[name], clock, async () => undefined);
  await withTables(files.orders, orderTables, clock, async (connection) => {
    const mode = naive ? "naive" : "outbox";
    await connection.write((statements) => {
      const last = statements.get("SELECT ended_at, mode FROM runs ORDER BY rowid DESC LIMIT 1");
      if (last !== undefined && last["mode"] !== mode) {
        const other = naive ? "without" : "with";
        throw new WaybillError(
          "INVALID_OPTION",
          `the shop in ${folder} was run ${other} --naive: go on ${other} it, or name another folder with --data`,
        );
      }
      const at = new Date(clock.now()).toISOString();
      for (let relay = 0; last !== undefined && last["ended_at"] === null && relay < relays; relay++) {
        statements.run("INSERT INTO faults (at, kind, what) VALUES (?, 'run interrupted', 'the last run did not end by itself')", [at]);
      }
      statements.run("INSERT INTO runs (started_at, mode) VALUES (?, ?)", [at, mode]);
    });
  });
  return () =>
    withConnection(files.orders, clock, async (connection) => {
      await connection.write((statements) =>
        statements.run("UPDATE runs SET ended_at = ? WHERE ended_at IS NULL", [new Date(clock.now()).toISOString()]),
      );
    });
}

type Connection = ReturnType<typeof createConnection>;

async function withTables(path: string, tables: string, clock: Clock, then: (connection: Connection) => Promise<void>): Promise<void> {
  await using store = sqlite({ path });
  await store.schema.migrate();
  await withConnection(path, clock, async (connection) => {
    await connection.write((statements) => statements.exec(tables));
    await then(connection);
  });
}

async function withConnection(path: string, clock: Clock, work: (connection: Connection) => Promise<void>): Promise<void> {
  const connection = createConnection({ path, lockTimeoutMs: 10_000 });
  try {
    await work(connection);
  } finally {
    await connection.close();
  }
}
