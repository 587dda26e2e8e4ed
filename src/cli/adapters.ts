import { accessSync, constants, existsSync, statSync } from "node:fs";
import { dirname, resolve } from "node:path";
import type { Sink } from "../contracts/sink.ts";
import type { Store } from "../contracts/store.ts";
import { embedded } from "../brokers/embedded/index.ts";
import { WaybillError } from "../core/errors.ts";
import type { Added, Draft } from "../core/event.ts";
import { createOutbox } from "../outbox/outbox.ts";
import { defaultDriver, explain, type SqliteDatabase } from "../sqlite/driver.ts";
import { sqlite } from "../stores/sqlite/index.ts";
import { redact } from "./redact.ts";

/** A store as commands use it; only this file knows which one it is. */
export interface OpenedStore extends AsyncDisposable {
  readonly store: Store<SqliteDatabase>;
  /** Why its log cannot be tailed; null where it can. */
  readonly noTail: string | null;
  /** Adds events in a transaction on a connection of its own, as a service would. */
  add(drafts: readonly Draft[]): Promise<readonly Added[]>;
}

export interface OpenedBroker extends AsyncDisposable {
  readonly sink: Sink;
  /** Creates what is missing of the topics. */
  provision(topics: readonly string[]): Promise<void>;
  /** Deletes what is older from every topic; says how many. */
  purge(before: Date): Promise<number>;
}

const stores = ["sqlite"];
const brokers = ["embedded"];
const later: Readonly<Record<string, "store" | "broker">> = {
  postgres: "store",
  postgresql: "store",
  mysql: "store",
  mariadb: "store",
  kafka: "broker",
  amqp: "broker",
  amqps: "broker",
  nats: "broker",
  tls: "broker",
  redis: "broker",
  rediss: "broker",
};

/** With `create`, a file that is not there yet may be made; otherwise its tables must be there and fit this code. */
export async function openStore(url: string, { create }: { readonly create: boolean }): Promise<OpenedStore> {
  const path = filePath(url, "store", "sqlite", stores, brokers);
  // Opening would create an empty file, and a misspelt path would look like an empty outbox.
  if (!checkFile(path) && !create) {
    throw new WaybillError("NOT_MIGRATED", `there is no file ${path}: check the path, or run waybill migrate --store ${redact(url)}`);
  }
  const store = sqlite({ path });
  try {
    if (!create) await store.schema.check();
  } catch (error) {
    await store[Symbol.asyncDispose]();
    throw error;
  }
  return {
    store,
    noTail: "SQLite has no log that other programs can follow: use --mode poll, which is woken at once by writers of its own process",
    add: (drafts) => addThrough(store, path, drafts),
    [Symbol.asyncDispose]: () => store[Symbol.asyncDispose](),
  };
}

export function openBroker(url: string, { create }: { readonly create: boolean }): OpenedBroker {
  const path = filePath(url, "broker", "embedded", brokers, stores);
  if (!checkFile(path) && !create)
    throw new WaybillError("DESTINATION_UNAVAILABLE", `there is no file ${path}: check the path of --broker`);
  const broker = embedded({ path });
  return {
    sink: broker,
    provision: (topics) => broker.provision(topics),
    purge: (before) => broker.purge(before),
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
function filePath(url: string, role: "store" | "broker", scheme: string, ours: readonly string[], others: readonly string[]): string {
  const [, given, rest = ""] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(url) ?? [];
  const name = given?.toLowerCase();
  const shown = JSON.stringify(redact(url));
  const example = `${scheme}:./${role === "store" ? "app" : "broker"}.db`;
  if (name === undefined) throw new WaybillError("BAD_URL", `--${role} ${shown} is not a URL: write it as ${example}`);
  if (!ours.includes(name)) {
    const known = Object.hasOwn(later, name) ? later[name] : others.includes(name) ? (role === "store" ? "broker" : "store") : undefined;
    if (known !== undefined && known !== role)
      throw new WaybillError("BAD_URL", `--${role} ${shown} is the URL of a ${known}: a ${role} is written as ${example}`);
    throw new WaybillError(
      "BAD_URL",
      `--${role} ${shown}: this version has no adapter for ${name}:, only ${ours.map((one) => `${one}:`).join(", ")} (${example})`,
    );
  }
  const path = rest.startsWith("//") ? rest.slice(2) : rest;
  if (rest.startsWith("//") && !path.startsWith("/")) {
    throw new WaybillError("BAD_URL", `--${role} ${shown} names a host: write ${name}:PATH, or ${name}:///PATH for an absolute one`);
  }
  if (path === "" || path.endsWith("/")) throw new WaybillError("BAD_URL", `--${role} ${shown} names no file: write it as ${example}`);
  if (path === ":memory:")
    throw new WaybillError("BAD_URL", `--${role} ${shown}: a database in memory cannot be shared with another process; name a file`);
  if (/[?\0\r\n]/.test(path))
    throw new WaybillError("BAD_URL", `--${role} ${shown}: a path must not hold "?" or line ends, and takes no parameters`);
  return path;
}
