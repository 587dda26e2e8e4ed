import type * as contract from "../contracts/adapter.ts";
import { WaybillError } from "../core/errors.ts";
import type { Added, Draft } from "../core/event.ts";
import { outboxOn } from "../outbox/opened.ts";
import { adapters as table, type Adapters } from "./adapters.ts";
import { openOwnBroker, openOwnStore, type OwnBroker, type OwnStore } from "./own.ts";
import { lettersWithoutSecrets, withoutSecrets } from "./told.ts";
import { brokerUrl, logUrl as logUrlOf, storeUrl } from "./url.ts";
import { usage } from "./usage.ts";

/** A store as commands use it; only the adapters know which one it is. */
export interface CommandStore extends AsyncDisposable {
  readonly store: contract.OpenedStore["store"];
  /** Why a relay cannot read its log. */
  readonly noTail: string;
  /** Adds events in a transaction on a connection of its own, as a service would. */
  add(drafts: readonly Draft[]): Promise<readonly Added[]>;
}

interface StoreSettings extends Omit<contract.Placing, "logUrl"> {
  readonly logUrl?: string;
  readonly create: boolean;
  readonly check?: boolean;
  /** What a service's transactions begin on, when the store comes from the configuration file. */
  readonly db?: unknown;
}

export type CommandBroker = contract.OpenedBroker & AsyncDisposable;

/**
 * With `create`, a missing file and missing tables may be created. Otherwise they must exist, and match this code unless `check` is false.
 */
export async function openStore(
  place: string | OwnStore,
  { create, check = !create, db, ...settings }: StoreSettings,
  adapters = table,
): Promise<CommandStore> {
  const url = typeof place === "string" ? storeUrl(place, adapters) : null;
  const opened =
    url === null
      ? await ownStore(place as OwnStore, db, settings)
      : url.adapter.open(url, create, placingOn(url.adapter, settings, adapters));
  const { store } = opened;
  const outbox = outboxOn(opened);
  const end = (): PromiseLike<void> => opened[Symbol.asyncDispose]();
  try {
    if (check) await store.schema.check();
  } catch (error) {
    await end();
    throw error;
  }
  return {
    store: { ...store, operator: withoutSecrets(store.operator), letters: lettersWithoutSecrets(store.letters) },
    noTail:
      url?.adapter.noTail ?? "this store of the configuration file reads no log: give it the address of its server, or use --mode poll",
    add: (drafts) => opened.transaction((tx) => outbox.add(tx, drafts)),
    [Symbol.asyncDispose]: end,
  };
}

function placingOn(
  adapter: contract.StoreAdapter,
  { logUrl, ...placing }: Pick<StoreSettings, keyof contract.Placing>,
  adapters: Adapters,
): contract.Placing {
  if (logUrl === undefined) return placing;
  if (adapter.logUrl === undefined) {
    const readable = adapters.stores.flatMap((one) => (one.logUrl === undefined ? [] : one.schemes.map((scheme) => `${scheme}:`)));
    usage(
      `--log-url, WAYBILL_LOG_URL and the key logUrl are for ${readable.join(" and ")} alone: leave them out for ${adapter.schemes[0]!}:`,
    );
  }
  return { ...placing, logUrl: logUrlOf(logUrl, adapter, adapters) };
}

async function ownStore(own: OwnStore, db: unknown, placing: object): Promise<contract.OpenedStore> {
  const [first] = Object.keys(placing);
  if (first !== undefined)
    throw new WaybillError("CONFIG_INVALID", `${first} goes with a store's URL: leave it out, and give it to the store of the file itself`);
  return openOwnStore(own, db);
}

/** `management` is the URL of the broker's own HTTP API. */
export async function openBroker(
  place: string | OwnBroker,
  { management, ...options }: { readonly create: boolean; readonly management?: string | undefined },
  adapters = table,
): Promise<CommandBroker> {
  if (typeof place !== "string") {
    if (management !== undefined) usage("--management is for a broker's URL: leave it out for the broker of the configuration file");
    return closing(await openOwnBroker(place));
  }
  const url = brokerUrl(place, adapters);
  if (management !== undefined && url.adapter.management === undefined) {
    const managed = adapters.brokers.flatMap((one) => (one.management === undefined ? [] : one.schemes.map((scheme) => `${scheme}:`)));
    usage(`--management is for ${managed.join(" and ")} alone: leave it out for ${url.scheme}:`);
  }
  return closing(url.adapter.open(url, { ...options, ...(management === undefined ? {} : { management }) }));
}

const closing = (opened: contract.OpenedBroker): CommandBroker => ({
  ...opened,
  [Symbol.asyncDispose]: () => opened.sink[Symbol.asyncDispose](),
});
