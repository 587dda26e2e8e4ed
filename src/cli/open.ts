import type * as contract from "../contracts/adapter.ts";
import { WaybillError } from "../core/errors.ts";
import type { Added, Draft } from "../core/event.ts";
import { outboxOn } from "../outbox/opened.ts";
import { adapters as table } from "./adapters.ts";
import { openOwnBroker, openOwnStore, type OwnBroker, type OwnStore } from "./own.ts";
import { lettersWithoutSecrets, withoutSecrets } from "./told.ts";
import { brokerUrl, storeUrl } from "./url.ts";
import { usage } from "./usage.ts";

/** A store as commands use it; only the adapters know which one it is. */
export interface CommandStore extends AsyncDisposable {
  readonly store: contract.OpenedStore["store"];
  readonly noTail: string;
  /** Adds events in a transaction on a connection of its own, as a service would. */
  add(drafts: readonly Draft[]): Promise<readonly Added[]>;
}

interface StoreSettings extends contract.Placing {
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
  { create, check = !create, db, ...placing }: StoreSettings,
  adapters = table,
): Promise<CommandStore> {
  const url = typeof place === "string" ? storeUrl(place, adapters) : null;
  const opened = url === null ? await ownStore(place as OwnStore, db, placing) : url.adapter.open(url, create, placing);
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
    noTail: url?.adapter.noTail ?? "a store of the configuration file is polled",
    add: (drafts) => opened.transaction((tx) => outbox.add(tx, drafts)),
    [Symbol.asyncDispose]: end,
  };
}

async function ownStore(own: OwnStore, db: unknown, placing: contract.Placing): Promise<contract.OpenedStore> {
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
