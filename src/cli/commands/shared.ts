import { userInfo } from "node:os";
import { openBroker, openStore, type CommandBroker, type CommandStore } from "../open.ts";
import { flag } from "../parse.ts";
import { brokerPlace, logPlace, storePlace, type Placed } from "../places.ts";
import type { Terminal } from "../terminal.ts";
import { usage } from "../usage.ts";

export function storeOf(
  terminal: Terminal,
  values: Placed<"store"> & Partial<Placed<"log-url">> & { readonly listen?: boolean },
  create = false,
  check = !create,
): Promise<CommandStore> {
  const { config, adapters } = terminal;
  const place = storePlace(terminal, values);
  if (place === undefined)
    usage("the store is missing: give --store URL, --store-file PATH or WAYBILL_STORE, or store in the configuration file");
  const { schema, names, partitions, onPublish, db } = config;
  const listen = values.listen === true || config.listen === true ? (true as const) : undefined;
  // Other commands read no log.
  const logUrl = "log-url" in values ? logPlace(terminal, values) : undefined;
  return openStore(place, { create, check, ...given({ schema, names, partitions, onPublish, listen, logUrl, db }) }, adapters);
}

export async function brokerOf(terminal: Terminal, values: Placed<"broker">, create = true, management?: string): Promise<CommandBroker> {
  const place = brokerPlace(terminal, values);
  if (place === undefined)
    usage("the broker is missing: give --broker URL, --broker-file PATH or WAYBILL_BROKER, or broker in the configuration file");
  return openBroker(place, { create, management }, terminal.adapters);
}

export const asFlag = { as: flag.text("NAME", "who acts, for the audit (default: the user of this system)") };

export function who(values: { readonly as: string | undefined }): string {
  if (values.as !== undefined) return values.as;
  try {
    return userInfo().username;
  } catch {
    return `uid ${process.getuid?.() ?? "unknown"}`; // a container's user may have no name
  }
}

export type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Drops undefined values: an option that is undefined is not the same as an absent option. */
export function given<T extends object>(values: T): Given<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Given<T>;
}
