import { userInfo } from "node:os";
import { openBroker, openStore, type CommandBroker, type CommandStore } from "../open.ts";
import { flag } from "../parse.ts";
import { brokerPlace, storePlace, type Placed } from "../places.ts";
import type { Terminal } from "../terminal.ts";
import { usage } from "../usage.ts";

export function storeOf(terminal: Terminal, values: Placed<"store">, create = false, check = !create): Promise<CommandStore> {
  const { config, adapters } = terminal;
  const url = storePlace(terminal, values);
  if (url === undefined)
    usage("the store is missing: give --store URL, --store-file PATH or WAYBILL_STORE, or store in the configuration file");
  const placing = given({ schema: config.schema, names: config.names, partitions: config.partitions, onPublish: config.onPublish });
  return openStore(url, { create, check, ...placing }, adapters);
}

export function brokerOf(terminal: Terminal, values: Placed<"broker">, create = true, management?: string): CommandBroker {
  const url = brokerPlace(terminal, values);
  if (url === undefined)
    usage("the broker is missing: give --broker URL, --broker-file PATH or WAYBILL_BROKER, or broker in the configuration file");
  return openBroker(url, { create, management }, terminal.adapters);
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

type Given<T> = { [K in keyof T]?: Exclude<T[K], undefined> };

/** Without what was not given: an option that is undefined is not the same as none. */
export function given<T extends object>(values: T): Given<T> {
  return Object.fromEntries(Object.entries(values).filter(([, value]) => value !== undefined)) as Given<T>;
}
