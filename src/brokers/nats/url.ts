import { WaybillError } from "../../core/errors.ts";
import { tlsFiles, urlParts, type Address } from "../kit/url.ts";

export interface Settings {
  readonly addresses: readonly Address[];
  readonly user: string | null;
  readonly password: string | null;
  readonly token: string | null;
  /** The content of a credentials file. */
  readonly credentials: Buffer | null;
  /** Like `Tls` in kit/url.ts. */
  readonly tls: { readonly ca: string | null; readonly cert: string | null; readonly key: string | null } | null;
  /** How many servers keep each stream that Waybill creates. */
  readonly replicas: number | null;
}

const example = "nats://user:password@host:4222,host2:4222";
const parameters = [...tlsFiles, "credentials", "replicas"];

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `nats: ${why}${cause === undefined ? `; a URL is written as ${example}` : ""}`, { cause });
const { addressOf, decoded, fileOf, tlsOf } = urlParts(bad);

/** `nats:` is not encrypted, `tls:` is encrypted and verified. Several servers of one cluster are written with commas. */
export function settingsOf(text: string): Settings {
  const [, scheme, login, places = "", , query = ""] = /^(nats|tls):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(\/?)(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) throw bad("the URL cannot be understood");
  const search = new URLSearchParams(query);
  const tls = tlsOf(search, scheme.toLowerCase() === "tls", "tls", parameters);
  const credentials = search.get("credentials");
  return {
    addresses: places.split(",").map((place) => addressOf(place, 4222)),
    ...loginOf(login),
    credentials: credentials === null ? null : fileOf("credentials", credentials),
    tls: tls && { ca: null, cert: null, key: null, ...tls },
    replicas: replicasIn(search.getAll("replicas")),
  };
}

function replicasIn(said: readonly string[]): number | null {
  if (said.length > 1 || said.some((count) => !/^[1-9]\d?$/.test(count))) throw bad("replicas is one whole number, such as replicas=3");
  return said.length === 0 ? null : Number(said[0]);
}

/** One word before the @ is a token, as in other NATS clients. */
function loginOf(login: string | undefined): Pick<Settings, "user" | "password" | "token"> {
  if (login === undefined || login === "") return { user: null, password: null, token: null };
  const [first = "", ...rest] = login.split(":");
  if (rest.length === 0) return { user: null, password: null, token: decoded(first) };
  return { user: decoded(first), password: decoded(rest.join(":")), token: null };
}

/** For error messages: without user, password or token. */
export const placeOf = ({ addresses: [first], tls }: Settings, address: Address = first!): string =>
  `${tls === null ? "nats" : "tls"}://${address.host}:${address.port}`;
