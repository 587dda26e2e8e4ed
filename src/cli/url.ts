import type { Adapter, BrokerAdapter, Named, StoreAdapter } from "../contracts/adapter.ts";
import { WaybillError } from "../core/errors.ts";
import { refuseUrl, type Url } from "../core/url.ts";
import type { Access } from "../proof/run/access.ts";
import { adapterOf, adapters as table, type Adapters } from "./adapters.ts";
import { redact } from "./redact.ts";

/** Refuses a URL that no adapter takes. It opens nothing. */
export const storeUrl = (text: string, adapters = table): Named<StoreAdapter> => readUrl(text, "store", adapters.stores, adapters);
export const brokerUrl = (text: string, adapters = table): Named<BrokerAdapter> => readUrl(text, "broker", adapters.brokers, adapters);

/** Refuses a URL that is not one of the store's own kind. */
export function logUrl(text: string, { schemes, example }: StoreAdapter, adapters = table): Url {
  const [, given = "", rest = ""] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(text) ?? [];
  const url = { text, shown: redact(text, adapters), role: "log-url" as const, scheme: given.toLowerCase(), rest, example };
  return schemes.includes(url.scheme) ? url : refuseUrl(url, `does not name the server of the store: write it as ${example}`);
}

/** For a verify run, whose code knows no adapter. */
export const accessTo = (adapters = table): Access => ({
  store: (text) => storeUrl(text, adapters),
  broker: (text) => brokerUrl(text, adapters),
});

/** A store's URL given as a broker, or the reverse, gets its own error. */
function readUrl<A extends Adapter>(text: string, role: "store" | "broker", ours: readonly A[], adapters: Adapters): Named<A> {
  const [, given, rest = ""] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(text) ?? [];
  const scheme = given?.toLowerCase() ?? "";
  const adapter = ours.find(({ schemes }) => schemes.includes(scheme));
  const { example = "" } = adapter ?? ours[0] ?? {};
  const url = { text, shown: redact(text, adapters), role, scheme, rest, example };
  if (given === undefined) return refuseUrl(url, `is not a URL: write it as ${example}`);
  if (adapter !== undefined) return { ...url, adapter };
  const other = role === "store" ? "broker" : "store";
  if (adapterOf(text, adapters) !== undefined) return refuseUrl(url, `is the URL of a ${other}: a ${role} is written as ${example}`);
  const known = ours.flatMap(({ schemes }) => schemes.map((one) => `${one}:`)).join(", ");
  throw new WaybillError(
    "BAD_URL",
    `--${role} ${JSON.stringify(url.shown)}: this version has no adapter for ${scheme}:, only ${known} (${example})`,
  );
}
