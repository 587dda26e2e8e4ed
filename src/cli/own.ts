import { purgesItself } from "../brokers/kit/describe.ts";
import type { OpenedBroker, OpenedStore } from "../contracts/adapter.ts";
import type { ConfiguredBroker, ConfiguredStore } from "../contracts/config.ts";
import type { Store } from "../contracts/store.ts";
import { asError, isWaybillError, WaybillError } from "../core/errors.ts";
import type { Refuse } from "./read.ts";
import { usage } from "./usage.ts";

/** A store or a broker that the configuration file supplies, instead of a URL. */
export type Own<T> = T | (() => T | Promise<T>);
export type OwnStore = Own<ConfiguredStore>;
export type OwnBroker = Own<ConfiguredBroker>;

type Kind = "store" | "broker";
type Form = "object" | "function" | "string";

const forms: Readonly<Record<Kind, Readonly<Record<string, Form>>>> = {
  store: {
    name: "string",
    schema: "object",
    writer: "object",
    transactor: "object",
    outbox: "object",
    leases: "object",
    inbox: "object",
    letters: "object",
    consumers: "object",
    operator: "object",
    wake: "object",
  },
  broker: { name: "string", can: "object", connect: "function", publish: "function", probe: "function" },
};

const contracts = { store: "a Store", broker: "a Sink" } as const;

/** The missing parts of a store or a broker, by name. The types check the parts that are there, and the conformance suites prove them. */
function missing(kind: Kind, value: unknown): readonly string[] {
  if (typeof value !== "object" || value === null) return Object.keys(forms[kind]);
  const parts = value as Readonly<Record<PropertyKey, unknown>>;
  const lacking = Object.entries(forms[kind]).filter(([name, form]) => typeof parts[name] !== form || parts[name] === null);
  const disposed = typeof parts[Symbol.asyncDispose] === "function" ? [] : ["[Symbol.asyncDispose]"];
  return [...lacking.map(([name]) => name), ...disposed];
}

/** For a key of the file that is no text. A function is called later, by the command that needs its result. */
export function checkOwn<T>(kind: Kind, value: unknown, refuse: Refuse): Own<T> {
  if (typeof value === "function") return value as () => T;
  if (typeof value !== "object" || value === null) return refuse(`must be a URL, ${contracts[kind]} or a function that makes one`);
  const lacking = missing(kind, value);
  return lacking.length === 0
    ? (value as T)
    : refuse(`must be a URL, ${contracts[kind]} or a function that makes one: this object lacks ${lacking.join(", ")}`);
}

async function made<T>(kind: Kind, own: Own<T>): Promise<T> {
  if (typeof own !== "function") return own;
  let value: T;
  try {
    value = await (own as () => T | Promise<T>)();
  } catch (cause) {
    if (isWaybillError(cause)) throw cause;
    throw new WaybillError("CONFIG_INVALID", `${kind}: the function of the configuration file failed: ${asError(cause).message}`, {
      cause,
    });
  }
  const lacking = missing(kind, value);
  if (lacking.length === 0) return value;
  const what = `${kind}: the function of the configuration file must make ${contracts[kind]}`;
  throw new WaybillError("CONFIG_INVALID", `${what}, and what it made lacks ${lacking.join(", ")}`);
}

/** Copied part by part: spreading an instance of a class would leave its methods behind. */
export async function openOwnStore(own: OwnStore, db: unknown): Promise<OpenedStore> {
  const store = (await made("store", own)) as Store<never, never>;
  const { name, schema, writer, transactor, outbox, leases, inbox, letters, consumers, operator, housekeeping, tail, wake } = store;
  const close = (): PromiseLike<void> => store[Symbol.asyncDispose]();
  return {
    store: {
      ...{ name, schema, writer, transactor, outbox, leases, inbox, letters, consumers, operator, wake },
      ...(housekeeping === undefined ? {} : { housekeeping }),
      ...(tail === undefined ? {} : { tail }),
      ...(store.examine === undefined ? {} : { examine: (topics, signal) => store.examine!(topics, signal) }),
      [Symbol.asyncDispose]: close,
    },
    transaction: (work) =>
      db === undefined
        ? usage("this needs db in the configuration file, beside a store that is no URL: what outbox.transaction is given, such as a pool")
        : transactor.transaction(db as never, work),
    [Symbol.asyncDispose]: close,
  };
}

export async function openOwnBroker(own: OwnBroker): Promise<OpenedBroker> {
  const sink = await made("broker", own);
  return {
    sink,
    async provision(topics, consumers) {
      if (topics.length === 0) return;
      if (sink.provision !== undefined) return sink.provision(topics, consumers);
      const why = `broker ${sink.name} of the configuration file has no provision(topics, consumers)`;
      throw new WaybillError("UNSUPPORTED", `${why}: give it one, or create ${topics.join(", ")} yourself and leave topics out`);
    },
    purge: purgesItself("waybill purge deletes from a broker that --broker names by its URL"),
  };
}
