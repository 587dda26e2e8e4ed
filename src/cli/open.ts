import type * as contract from "../contracts/adapter.ts";
import type { Added, Draft } from "../core/event.ts";
import { outboxOn } from "../outbox/opened.ts";
import { adapters as table } from "./adapters.ts";
import { withoutSecrets } from "./told.ts";
import { brokerUrl, storeUrl } from "./url.ts";
import { usage } from "./usage.ts";

/** A store as commands use it; only the adapters know which one it is. */
export interface CommandStore extends AsyncDisposable {
  readonly store: contract.OpenedStore["store"];
  readonly noTail: string;
  /** Adds events in a transaction on a connection of its own, as a service would. */
  add(drafts: readonly Draft[]): Promise<readonly Added[]>;
}

export type CommandBroker = contract.OpenedBroker & AsyncDisposable;

/**
 * With `create`, tables (and a file) that are not there yet may be made; otherwise they must be there, and fit this code unless
 * `check` is false.
 */
export async function openStore(
  text: string,
  { create, check = !create, ...placing }: { readonly create: boolean; readonly check?: boolean } & contract.Placing,
  adapters = table,
): Promise<CommandStore> {
  const url = storeUrl(text, adapters);
  const opened = url.adapter.open(url, create, placing);
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
    store: { ...store, operator: withoutSecrets(store.operator) },
    noTail: url.adapter.noTail,
    add: (drafts) => opened.transaction((tx) => outbox.add(tx, drafts)),
    [Symbol.asyncDispose]: end,
  };
}

/** `management` is the URL of the broker's own HTTP API. */
export function openBroker(
  text: string,
  { management, ...options }: { readonly create: boolean; readonly management?: string | undefined },
  adapters = table,
): CommandBroker {
  const url = brokerUrl(text, adapters);
  if (management !== undefined && url.adapter.management === undefined) {
    const managed = adapters.brokers.flatMap((one) => (one.management === undefined ? [] : one.schemes.map((scheme) => `${scheme}:`)));
    usage(`--management is for ${managed.join(" and ")} alone: leave it out for ${url.scheme}:`);
  }
  const opened = url.adapter.open(url, { ...options, ...(management === undefined ? {} : { management }) });
  return { ...opened, [Symbol.asyncDispose]: () => opened.sink[Symbol.asyncDispose]() };
}
