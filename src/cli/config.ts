import { existsSync, readFileSync } from "node:fs";
import { basename, extname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { ConfigFile } from "../config-file.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { checkOptions, suggestion } from "../core/options.ts";
import type { Setting, SettingTable } from "../core/settings.ts";
import { housekeepingSettings, relaySettings } from "../relay/settings.ts";
import { partitionUnits } from "../stores/kit/schema.ts";
import { checkOwn, type OwnBroker, type OwnStore } from "./own.ts";
import { asIs, type Refuse } from "./read.ts";
import { fromFile, keyOf, type Configured } from "./settings.ts";

/** Settings of the commands themselves, and options of a store that is given by its URL. */
export const commandSettings = {
  topics: { kind: "names" },
  schema: { kind: "text" },
  partitions: { kind: "choice", of: partitionUnits },
  onPublish: { kind: "choice", of: ["keep", "delete"] },
  logUrl: { kind: "text" },
  http: { kind: "text", flag: "--http HOST:PORT: serve /healthz, /readyz and /metrics, such as 127.0.0.1:9464" },
} as const satisfies { readonly [K in keyof ConfigFile]: Setting };

/** The tables whose rows are keys of the file. */
const tables = [relaySettings, housekeepingSettings, commandSettings] as const;
type Rows = Configured<typeof relaySettings> & Configured<typeof housekeepingSettings> & Configured<typeof commandSettings>;
type Structured = Exclude<keyof ConfigFile, keyof Rows>;

/** The file as it was read: times are milliseconds, lists are lists. */
export interface Config extends Rows, Pick<ConfigFile, Exclude<Structured, "store" | "broker">> {
  readonly store?: string | OwnStore;
  readonly broker?: string | OwnBroker;
}

/** Keys that are no settings. The store or the relay checks whether the values suit it. */
const structured: Readonly<Record<Structured, (value: unknown, where: string, refuse: Refuse) => unknown>> = {
  store: (value, _, refuse) => (typeof value === "string" ? asIs(value, refuse) : checkOwn("store", value, refuse)),
  broker: (value, _, refuse) => (typeof value === "string" ? asIs(value, refuse) : checkOwn("broker", value, refuse)),
  consumers: (value, _, refuse) => consumersIn(value, refuse),
  housekeeping,
  names: (value, _, refuse) => tableNames(value, refuse),
  listen: (value, _, refuse) => (typeof value === "boolean" ? value : refuse("must be true or false")),
  observe: (value, _, refuse) => (typeof value === "function" ? value : refuse("must be a function that hears path events")),
  archive: (value, _, refuse) => (typeof value === "function" ? value : refuse("must be a function that is given events")),
  db: (value, _, refuse) => value ?? refuse("must be what outbox.transaction is given, such as a pool"),
};

const files = ["waybill.config.ts", "waybill.config.mjs", "waybill.config.json"];

/** The file that was named, or the one in the folder; an empty configuration when there is none. */
export async function loadConfig(folder: string, named: string | undefined): Promise<Config> {
  const found = named === undefined ? files.filter((name) => existsSync(join(folder, name))) : [named];
  const [path, second] = found;
  if (path === undefined) return {};
  if (second !== undefined)
    throw new WaybillError("CONFIG_INVALID", `there are ${found.join(" and ")}: keep one, or name one with --config`);
  return readConfig(await load(resolve(folder, path), path), path);
}

async function load(path: string, shown: string): Promise<unknown> {
  if (!existsSync(path)) throw new WaybillError("CONFIG_INVALID", `${shown} does not exist`);
  try {
    if (extname(path) === ".json") return JSON.parse(readFileSync(path, "utf8"));
    return ((await import(pathToFileURL(path).href)) as { default?: unknown }).default;
  } catch (cause) {
    const { code } = cause as { code?: unknown };
    if (code === "ERR_UNKNOWN_FILE_EXTENSION") {
      throw new WaybillError(
        "CONFIG_INVALID",
        `${shown}: Node ${process.versions.node} does not run ${extname(path)} files: use .mjs or .json, or Node 22.18 or later for .ts`,
        { cause },
      );
    }
    throw new WaybillError("CONFIG_INVALID", `${shown} cannot be read: ${asError(cause).message}`, { cause });
  }
}

/** The settings of the file by their keys. */
const rowsOf = (all: readonly SettingTable[]): ReadonlyMap<string | null, Setting> =>
  new Map(all.flatMap((table) => Object.entries(table).map(([name, row]) => [keyOf(name, row), row])));

export const configKeys = (all: readonly SettingTable[] = tables): readonly string[] =>
  [...Object.keys(structured), ...rowsOf(all).keys()].filter((key) => key !== null);

/** Checks the content of a file. It refuses the same texts as the command line. */
export function readConfig(content: unknown, path: string, all: readonly SettingTable[] = tables): Config {
  const where = basename(path);
  if (typeof content !== "object" || content === null || Array.isArray(content)) {
    throw new WaybillError("CONFIG_INVALID", `${where} must hold one object${extname(path) === ".json" ? "" : " as its default export"}`);
  }
  const [rows, known] = [rowsOf(all), configKeys(all)];
  const config: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(content)) {
    if (!known.includes(key))
      throw new WaybillError("CONFIG_INVALID", `${where} has an unknown key ${JSON.stringify(key)}${suggestion(key, known)}`);
    const refuse: Refuse = (why) => {
      throw new WaybillError("CONFIG_INVALID", `${where}: ${key} ${why}`);
    };
    const row = rows.get(key);
    config[key] = row === undefined ? structured[key as Structured](value, where, refuse) : fromFile(row, value, where, refuse);
  }
  return config;
}

function consumersIn(value: unknown, refuse: Refuse): NonNullable<ConfigFile["consumers"]> {
  const form = 'must be an object of consumers with their topics, such as { "shipping": ["order.events"] }';
  if (typeof value !== "object" || value === null || Array.isArray(value)) return refuse(form);
  const isTopics = (topics: unknown): boolean =>
    Array.isArray(topics) && topics.length > 0 && topics.every((topic) => typeof topic === "string" && topic !== "");
  return Object.entries(value).every(([name, topics]) => name !== "" && isTopics(topics))
    ? (value as NonNullable<ConfigFile["consumers"]>)
    : refuse(form);
}

function housekeeping(value: unknown, where: string, refuse: Refuse): NonNullable<ConfigFile["housekeeping"]> {
  if (typeof value === "boolean") return value;
  if (typeof value !== "object" || value === null) return refuse("must be true, false or an object with everyMs and warn");
  checkOptions(`${where}: housekeeping`, value, ["everyMs", "warn"]);
  return value;
}

function tableNames(value: unknown, refuse: Refuse): Readonly<Record<string, string>> {
  if (typeof value !== "object" || value === null || Object.values(value).some((name) => typeof name !== "string"))
    return refuse('must be an object of names, such as { "outbox": "events_out" }');
  return value as Record<string, string>;
}
