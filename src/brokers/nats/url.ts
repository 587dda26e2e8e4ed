import { readFileSync } from "node:fs";
import { WaybillError } from "../../core/errors.ts";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export interface Settings {
  readonly addresses: readonly Address[];
  readonly user: string | null;
  readonly password: string | null;
  readonly token: string | null;
  /** The content of a credentials file. */
  readonly credentials: Buffer | null;
  /** Null for a connection that is not encrypted; otherwise it is verified, by the system's authorities or by those given (PEM). */
  readonly tls: { readonly ca: Buffer | null; readonly cert: Buffer | null; readonly key: Buffer | null } | null;
}

const example = "nats://user:password@host:4222,host2:4222";
const files = ["ca", "cert", "key"] as const;
const parameters: readonly string[] = [...files, "credentials"];

const bad = (why: string): WaybillError => new WaybillError("BAD_URL", `nats: ${why}; a URL is written as ${example}`);

/** `nats:` is not encrypted, `tls:` is, and verified. Several servers of one cluster are written with commas. */
export function settingsOf(text: string): Settings {
  const [, scheme, login, places = "", , query = ""] = /^(nats|tls):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(\/?)(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) throw bad("the URL cannot be understood");
  const search = new URLSearchParams(query);
  for (const name of search.keys()) {
    if (!parameters.includes(name)) throw bad(`the URL has a parameter ${JSON.stringify(name)}, and may have ${parameters.join(", ")}`);
  }
  const encrypted = scheme.toLowerCase() === "tls";
  if (!encrypted && files.some((name) => search.has(name))) throw bad("ca, cert and key are for tls: URLs");
  if (search.has("cert") !== search.has("key")) throw bad("cert and key come together");
  const read = (name: string): Buffer | null => (search.has(name) ? fileOf(name, search.get(name)!) : null);
  return {
    addresses: places.split(",").map(addressOf),
    ...loginOf(login),
    credentials: read("credentials"),
    tls: encrypted ? { ca: read("ca"), cert: read("cert"), key: read("key") } : null,
  };
}

function addressOf(place: string): Address {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/i.exec(place) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || Number(port) > 65_535) throw bad("a server is written as host or host:port");
  return { host, port: port === undefined ? 4222 : Number(port) };
}

/** One word before the @ is a token, as in other NATS clients. */
function loginOf(login: string | undefined): Pick<Settings, "user" | "password" | "token"> {
  if (login === undefined || login === "") return { user: null, password: null, token: null };
  const [first = "", ...rest] = login.split(":");
  try {
    if (rest.length === 0) return { user: null, password: null, token: decodeURIComponent(first) };
    return { user: decodeURIComponent(first), password: decodeURIComponent(rest.join(":")), token: null };
  } catch {
    throw bad("the user or the password is not percent-encoded as it should be");
  }
}

function fileOf(name: string, path: string): Buffer {
  try {
    return readFileSync(path);
  } catch (cause) {
    throw new WaybillError("BAD_URL", `nats: the file ${JSON.stringify(path)}, given as ${name}, cannot be read`, { cause });
  }
}

/** For messages: who connects, and with which secret, stays out. */
export const placeOf = ({ addresses: [first], tls }: Settings, address: Address = first!): string =>
  `${tls === null ? "nats" : "tls"}://${address.host}:${address.port}`;
