import { accessSync, constants, existsSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import { embedded } from "../brokers/embedded/index.ts";
import type { Store } from "../contracts/store.ts";
import { WaybillError } from "../core/errors.ts";
import type { Added, Draft } from "../core/event.ts";
import { createOutbox } from "../outbox/outbox.ts";
import { defaultDriver, explain, type SqliteDatabase } from "../drivers/sqlite/driver.ts";
import { sqlite } from "../stores/sqlite/index.ts";
import type { OpenedBroker, OpenedStore } from "./opened.ts";
import { redact } from "./redact.ts";
import { refuseUrl, type Url } from "./url.ts";

/** With `create`, a file that is not there yet may be made. */
export function openSqlite(url: Url, create: boolean, placing: object): OpenedStore {
  const others = Object.keys(placing);
  if (others.length > 0)
    return refuseUrl(url, `is a file, which knows nothing of ${others.join(", ")} in the configuration: leave them out`);
  const path = pathOf(url);
  // Opening would create an empty file, and a misspelt path would look like an empty outbox.
  if (!checkFile(path) && !create) {
    throw new WaybillError("NOT_MIGRATED", `there is no file ${path}: check the path, or run waybill migrate --store ${redact(url.text)}`);
  }
  const store = sqlite({ path });
  return {
    store,
    noTail: "SQLite has no log that other programs can follow: use --mode poll, which is woken at once by writers of its own process",
    add: (drafts) => addThrough(store, path, drafts),
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

export function openEmbedded(url: Url, create: boolean): OpenedBroker {
  const path = pathOf(url);
  if (!checkFile(path) && !create)
    throw new WaybillError("DESTINATION_UNAVAILABLE", `there is no file ${path}: check the path of --broker`);
  const broker = embedded({ path });
  return {
    sink: broker,
    async provision(topics, consumers) {
      if (consumers.length > 0)
        throw new WaybillError("USAGE", "--consumers: the embedded broker needs nothing for a consumer; leave it out");
      await broker.provision(topics);
    },
    async purge(before, topics) {
      if (topics.length > 0) throw new WaybillError("USAGE", "--topics: the embedded broker purges all its topics; leave it out");
      return broker.purge(before);
    },
    [Symbol.asyncDispose]: () => broker[Symbol.asyncDispose](),
  };
}

async function addThrough(store: Store<SqliteDatabase>, path: string, drafts: readonly Draft[]): Promise<readonly Added[]> {
  const open = await defaultDriver();
  let db: SqliteDatabase | null = null;
  try {
    db = open(path);
    const outbox = createOutbox({ store });
    return await store.transactor.transaction(db, (tx) => outbox.add(tx, drafts));
  } catch (error) {
    throw explain(error, path);
  } finally {
    db?.close();
  }
}

/** Says whether the file is there, and refuses what could never be opened; clients have no words for it. */
function checkFile(path: string): boolean {
  const folder = dirname(resolve(path));
  const can = (where: string, what: number): boolean => {
    try {
      accessSync(where, what);
      return true;
    } catch {
      return false;
    }
  };
  if (existsSync(path)) {
    if (!statSync(path).isFile()) throw new WaybillError("STORE_UNAVAILABLE", `${path} cannot be used: it is not a file`);
    if (!can(path, constants.R_OK)) throw new WaybillError("STORE_UNAVAILABLE", `${path} cannot be used: this user may not read it`);
    return true;
  }
  if (!existsSync(folder)) throw new WaybillError("STORE_UNAVAILABLE", `the folder of ${path} does not exist: create it first`);
  if (!can(folder, constants.W_OK))
    throw new WaybillError("STORE_READ_ONLY", `${path} cannot be created: this user may not write to its folder`);
  return false;
}

/** The path of `scheme:PATH` and `scheme:///PATH`, taken as it is written. */
export function pathOf(url: Url): string {
  const { scheme, rest, example } = url;
  const path = rest.startsWith("//") ? rest.slice(2) : rest;
  if (rest.startsWith("//") && !path.startsWith("/"))
    return refuseUrl(url, `names a host: write ${scheme}:PATH, or ${scheme}:///PATH for an absolute one`);
  if (path === "" || path.endsWith("/")) return refuseUrl(url, `names no file: write it as ${example}`);
  if (path === ":memory:") return refuseUrl(url, "is a database in memory, which cannot be shared with another process; name a file");
  if (/[?\0\r\n]/.test(path)) return refuseUrl(url, 'names a path that holds "?" or line ends, and takes no parameters');
  return path;
}
