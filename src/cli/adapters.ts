import { openEmbedded, openSqlite } from "./files.ts";
import type { OpenedBroker, OpenedStore } from "./opened.ts";
import { openMysql, openPostgres, type Placing } from "./servers.ts";
import { readUrl, type Schemes, type Url } from "./url.ts";

const stores: Readonly<Record<string, (url: Url, create: boolean, placing: Placing) => OpenedStore>> = {
  sqlite: openSqlite,
  postgres: (url, _, placing) => openPostgres(url, placing),
  postgresql: (url, _, placing) => openPostgres(url, placing),
  mysql: (url, _, placing) => openMysql(url, placing),
  mariadb: (url, _, placing) => openMysql(url, placing),
};
const brokers = ["embedded"];
const known: Schemes = {
  ...Object.fromEntries(Object.keys(stores).map((scheme) => [scheme, "store" as const])),
  ...Object.fromEntries(
    [...brokers, "kafka", "amqp", "amqps", "nats", "tls", "redis", "rediss"].map((scheme) => [scheme, "broker" as const]),
  ),
};

/** With `create`, tables (and a file) that are not there yet may be made; otherwise they must be there and fit this code. */
export async function openStore(text: string, { create, ...placing }: { readonly create: boolean } & Placing): Promise<OpenedStore> {
  const url = readUrl(text, "store", Object.keys(stores), known);
  const opened = stores[url.scheme]!(url, create, placing);
  try {
    if (!create) await opened.store.schema.check();
    return opened;
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

export function openBroker(text: string, { create }: { readonly create: boolean }): OpenedBroker {
  return openEmbedded(readUrl(text, "broker", brokers, known), create);
}
