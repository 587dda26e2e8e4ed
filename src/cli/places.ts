import { readFileSync } from "node:fs";
import { asError } from "../core/errors.ts";
import { adapters } from "./adapters.ts";
import type { OwnBroker, OwnStore } from "./own.ts";
import { flag, type Flag } from "./parse.ts";
import type { Read } from "./read.ts";
import type { Terminal } from "./terminal.ts";
import { usage } from "./usage.ts";

const mostCharacters = 8_192;

/** Read only once, because a pipe is empty afterwards. Errors do not quote the content: half a URL may be all password. */
const urlIn: Read<string> = (path, refuse) => {
  let text: string;
  try {
    text = readFileSync(path, "utf8").trim();
  } catch (cause) {
    return refuse(`${path} cannot be read: ${asError(cause).message}`);
  }
  const isOne = text !== "" && text.length <= mostCharacters && !/[\r\n\0]/.test(text);
  return isOne ? text : refuse(`${path} must hold one URL, and nothing else`);
};

/**
 * URLs hold passwords, and every user of a machine can read command lines. So a URL may also come from a file that a flag names, or from
 * the environment.
 */
const fileFlag = (what: string): Flag<string | undefined> =>
  flag.value(
    "PATH",
    `file with the ${what === "log-url" ? "URL of the log's server" : `${what}'s URL`}, to keep its password out of the command line (or ${variable(what)})`,
    urlIn,
  );

const variable = (what: string): string => `WAYBILL_${what.toUpperCase().replace("-", "_")}`;

export const storeFlag = {
  store: flag.text("URL", "the outbox, such as sqlite:./app.db"),
  "store-file": fileFlag("store"),
};
export const brokerFlag = {
  broker: flag.text("URL", "the broker, such as embedded:./broker.db"),
  "broker-file": fileFlag("broker"),
};
export const managementFlag = {
  management: flag.text("URL", adapters.brokers.flatMap(({ management = [] }) => management).join("; ")),
  "management-file": fileFlag("management"),
};

export const logFlag = {
  "log-url": flag.text("URL", adapters.stores.flatMap(({ logUrl = [] }) => logUrl).join("; ")),
  "log-url-file": fileFlag("log-url"),
};

type Place = "store" | "broker" | "management" | "log-url";
export type Placed<W extends Place> = { readonly [K in W | `${W}-file`]?: string | undefined };
type Around = Pick<Terminal, "env" | "config">;

/** The value from this command line, not from the environment or the configuration. */
export function asked<W extends Place>(what: W, values: Placed<W>): string | undefined {
  const { [what]: url, [`${what}-file`]: inFile } = values as Readonly<Record<string, string | undefined>>;
  if (url !== undefined && inFile !== undefined) usage(`--${what} and --${what}-file name the same thing: leave one out`);
  return url ?? inFile;
}

/** A flag wins over the environment, which wins over the configuration. An empty variable is none. */
const placeOf = <W extends Place>(what: W, { env }: Around, values: Placed<W>): string | undefined =>
  asked(what, values) ?? (env[variable(what)] || undefined);

export const storePlace = (around: Around, values: Placed<"store">): string | OwnStore | undefined =>
  placeOf("store", around, values) ?? around.config.store;
export const brokerPlace = (around: Around, values: Placed<"broker">): string | OwnBroker | undefined =>
  placeOf("broker", around, values) ?? around.config.broker;
export const managementPlace = (around: Around, values: Placed<"management">): string | undefined => placeOf("management", around, values);
export const logPlace = (around: Around, values: Placed<"log-url">): string | undefined =>
  placeOf("log-url", around, values) ?? around.config.logUrl;

/** For a command that starts processes of its own: an object cannot be passed to them. */
export function urlOnly(what: "store" | "broker", place: string | OwnStore | OwnBroker, name: string): string {
  return typeof place === "string"
    ? place
    : usage(`waybill ${name} starts processes of its own: give it the ${what}'s URL, not the object of the configuration file`);
}
