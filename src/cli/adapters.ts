import { WaybillError } from "../core/errors.ts";
import { openKafka, openNats, openRabbitmq, openRedis } from "./brokers.ts";
import { openEmbedded, openSqlite } from "./files.ts";
import type { OpenedBroker, OpenedStore } from "./opened.ts";
import { openMysql, openPostgres, type Placing } from "./servers.ts";
import { withoutSecrets } from "./told.ts";
import { readUrl, type Schemes, type Url } from "./url.ts";

const stores: Readonly<Record<string, (url: Url, create: boolean, placing: Placing) => OpenedStore>> = {
  sqlite: openSqlite,
  postgres: (url, _, placing) => openPostgres(url, placing),
  postgresql: (url, _, placing) => openPostgres(url, placing),
  mysql: (url, _, placing) => openMysql(url, placing),
  mariadb: (url, _, placing) => openMysql(url, placing),
};
const brokers: Readonly<Record<string, (url: Url, create: boolean, management: string | undefined) => OpenedBroker>> = {
  embedded: openEmbedded,
  kafka: openKafka,
  kafkas: openKafka,
  amqp: openRabbitmq,
  amqps: openRabbitmq,
  nats: openNats,
  tls: openNats,
  redis: openRedis,
  rediss: openRedis,
};
const known: Schemes = {
  ...Object.fromEntries(Object.keys(stores).map((scheme) => [scheme, "store" as const])),
  ...Object.fromEntries(Object.keys(brokers).map((scheme) => [scheme, "broker" as const])),
};

/** Refused unless there is an adapter for it; nothing is opened. */
export const storeUrl = (text: string): Url => readUrl(text, "store", Object.keys(stores), known);
export const brokerUrl = (text: string): Url => readUrl(text, "broker", Object.keys(brokers), known);

/** Brokers that tell some of their settings over HTTP only. */
const managed = ["amqp", "amqps"];

/**
 * With `create`, tables (and a file) that are not there yet may be made; otherwise they must be there, and fit this code unless
 * `check` is false.
 */
export async function openStore(
  text: string,
  { create, check = !create, ...placing }: { readonly create: boolean; readonly check?: boolean } & Placing,
): Promise<OpenedStore> {
  const url = storeUrl(text);
  const opened = stores[url.scheme]!(url, create, placing);
  try {
    if (check) await opened.store.schema.check();
    return { ...opened, store: { ...opened.store, operator: withoutSecrets(opened.store.operator) } };
  } catch (error) {
    await opened[Symbol.asyncDispose]();
    throw error;
  }
}

/** `management` is the URL of the broker's own HTTP API. */
export function openBroker(
  text: string,
  { create, management }: { readonly create: boolean; readonly management?: string | undefined },
): OpenedBroker {
  const url = brokerUrl(text);
  if (management !== undefined && !managed.includes(url.scheme))
    throw new WaybillError(
      "USAGE",
      `--management is for ${managed.map((one) => `${one}:`).join(" and ")} alone: leave it out for ${url.scheme}:`,
    );
  return brokers[url.scheme]!(url, create, management);
}
