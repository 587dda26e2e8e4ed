import { existsSync, readFileSync } from "node:fs";
import { basename, extname, join, resolve } from "node:path";
import { pathToFileURL } from "node:url";
import type { ConfigFile } from "../contracts/config.ts";
import { strategyNames } from "../relay/lanes/strategies.ts";
import { asError, WaybillError } from "../core/errors.ts";
import { LANES } from "../core/lane.ts";
import { checkOptions, suggestion } from "../core/options.ts";
import type { RetryOptions } from "../core/retry.ts";
import { partitionUnits } from "../stores/kit/schema.ts";
import { duration } from "./duration.ts";
import { checkOwn, type OwnBroker, type OwnStore } from "./own.ts";
import { asIs, laneNumbers, names, oneOf, whole, type Read, type Refuse } from "./read.ts";

const modes = ["poll", "tail"] as const;
const day = 86_400_000;

/** How each setting is parsed, from a flag or from the file. */
export const settings = {
  store: asIs,
  schema: asIs,
  broker: asIs,
  topics: names,
  mode: oneOf(modes),
  coordination: oneOf(strategyNames),
  own: laneNumbers(LANES),
  relayId: asIs,
  batch: whole(1, 100_000),
  batchesInFlight: whole(1, 1_000),
  windowBytes: whole(1, 1_073_741_824),
  // Longer waits would overflow Node's timers, which then fire at once.
  pollInterval: duration(1, day),
  lease: duration(1_000, day),
  topicRecords: whole(1, 10_000),
  publishTimeout: duration(1, day),
  route: asIs,
  onlyTopics: names,
  source: asIs,
  skip: names,
  http: asIs,
  retention: duration(1_000, 36_500 * day),
  keyRetention: duration(1_000, 36_500 * day),
  partitions: oneOf(partitionUnits),
  onPublish: oneOf(["keep", "delete"]),
} satisfies Partial<Record<keyof ConfigFile, Read<unknown>>>;

type Settings = { readonly [K in keyof typeof settings]?: ReturnType<(typeof settings)[K]> };
type Structured = Exclude<keyof ConfigFile, keyof typeof settings>;

/** The file as it was read: times are milliseconds, lists are lists. */
export interface Config extends Omit<Settings, "route" | "store" | "broker">, Pick<ConfigFile, Structured | "route"> {
  readonly store?: string | OwnStore;
  readonly broker?: string | OwnBroker;
}

/** Keys that are more than a text. The store or the relay checks whether the values suit it. */
const structured: Readonly<Record<Structured, (value: unknown, where: string, refuse: Refuse) => unknown>> = {
  consumers: (value, _, refuse) => consumersIn(value, refuse),
  retry,
  probeMs,
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

/** Checks the content of a file. It refuses the same texts as the command line. */
export function readConfig(content: unknown, path: string): Config {
  const where = basename(path);
  if (typeof content !== "object" || content === null || Array.isArray(content)) {
    throw new WaybillError("CONFIG_INVALID", `${where} must hold one object${extname(path) === ".json" ? "" : " as its default export"}`);
  }
  const known = configKeys();
  const config: Record<string, unknown> = {};
  for (const [key, value] of Object.entries(content)) {
    if (!known.includes(key))
      throw new WaybillError("CONFIG_INVALID", `${where} has an unknown key ${JSON.stringify(key)}${suggestion(key, known)}`);
    const refuse: Refuse = (why) => {
      throw new WaybillError("CONFIG_INVALID", `${where}: ${key} ${why}`);
    };
    if (Object.hasOwn(structured, key)) config[key] = structured[key as Structured](value, where, refuse);
    else if (key === "route" && typeof value === "function") config[key] = value;
    else if ((key === "store" || key === "broker") && typeof value !== "string") config[key] = checkOwn(key, value, refuse);
    else config[key] = settings[key as keyof typeof settings](asText(key, value, refuse), refuse);
  }
  return config;
}

export const configKeys = (): readonly string[] => [...Object.keys(settings), ...Object.keys(structured)];

/** Numbers and lists may be written as such. They are then parsed like the text of a flag. A time needs its unit. */
function asText(key: string, value: unknown, refuse: Refuse): string {
  if (typeof value === "string") return value;
  const number = ["batch", "batchesInFlight", "windowBytes", "topicRecords"].includes(key);
  if (number && typeof value === "number") return String(value);
  if (["topics", "onlyTopics", "skip", "own"].includes(key) && Array.isArray(value))
    return value.length === 0 ? refuse("must not be empty: leave the key out") : value.join(",");
  return refuse(`must be ${number ? "a number" : "text"}, not ${value === null ? "null" : typeof value}`);
}

function retry(value: unknown, where: string, refuse: Refuse): RetryOptions {
  if (typeof value !== "object" || value === null) return refuse("must be an object with delaysMs and jitter");
  checkOptions(`${where}: retry`, value, ["delaysMs", "jitter"] satisfies (keyof RetryOptions)[]);
  const { delaysMs, jitter } = value as { delaysMs?: unknown; jitter?: unknown };
  if (delaysMs !== undefined && !(Array.isArray(delaysMs) && delaysMs.every((ms) => typeof ms === "number" && ms >= 0 && ms <= 30 * day))) {
    return refuse("needs delaysMs as a list of milliseconds, such as [1000, 5000, 30000, 120000]");
  }
  if (jitter !== undefined && !(typeof jitter === "number" && jitter >= 0 && jitter < 1)) return refuse("needs jitter from 0 to below 1");
  return value;
}

function probeMs(value: unknown, where: string, refuse: Refuse): NonNullable<ConfigFile["probeMs"]> {
  if (typeof value !== "object" || value === null) return refuse("must be an object with first and last");
  checkOptions(`${where}: probeMs`, value, ["first", "last"]);
  const { first, last } = value as Readonly<Record<string, unknown>>;
  const isWait = (ms: unknown): ms is number => typeof ms === "number" && ms > 0 && ms <= day;
  return isWait(first) && isWait(last) && first <= last
    ? { first, last }
    : refuse("needs first and last in milliseconds, such as { first: 1000, last: 30000 }");
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
