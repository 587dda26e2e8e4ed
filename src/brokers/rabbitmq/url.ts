import { readFileSync } from "node:fs";
import { WaybillError } from "../../core/errors.ts";

export interface Address {
  readonly host: string;
  readonly port: number;
}

/** Null for a connection that is not encrypted; otherwise it is verified, by the system's authorities or by those given (PEM). */
export type Tls = { readonly ca?: string; readonly cert?: string; readonly key?: string } | null;

export interface Settings {
  /** Nodes of one cluster. */
  readonly addresses: readonly Address[];
  readonly user: string;
  readonly password: string;
  readonly vhost: string;
  readonly tls: Tls;
  /** As it may be shown: without whoever connects. */
  readonly shown: string;
}

const files: readonly string[] = ["ca", "cert", "key"];
const example = "amqp://user:password@host:5672/vhost";

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `rabbitmq: ${why}; a URL is written as ${example}`, { cause });

/** `amqp:` is not encrypted, `amqps:` is, and verified. Several nodes of one cluster are written with commas. */
export function settingsOf(text: string): Settings {
  const [, scheme, login, places = "", path = "", query = ""] =
    /^(amqps?):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/([^/?#]*))?(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) throw bad("the URL cannot be understood");
  const encrypted = scheme.toLowerCase() === "amqps";
  const tls = tlsOf(new URLSearchParams(query), encrypted, "amqps");
  const addresses = places.split(",").map((place) => addressOf(place, encrypted ? 5671 : 5672));
  const [user = "guest", password = ""] = login === undefined || login === "" ? ["guest", "guest"] : loginOf(login);
  const vhost = path === "" ? "/" : decoded(path, "the virtual host");
  const [first] = addresses;
  return {
    ...{ addresses, user, password, vhost, tls },
    shown: `${scheme.toLowerCase()}://${shownAddress(first!)}${vhost === "/" ? "" : `/${encodeURIComponent(vhost)}`}`,
  };
}

export const shownAddress = ({ host, port }: Address): string => `${host.includes(":") ? `[${host}]` : host}:${port}`;

export interface Page {
  readonly origin: URL;
  readonly user: string | null;
  readonly password: string | null;
  readonly tls: Tls;
}

/** Where the management plugin answers: `http://user:password@host:15672`, or `https:` with the parameters ca, cert and key. */
export function pageOf(text: string): Page {
  const wrong = (why: string): WaybillError =>
    new WaybillError("BAD_URL", `rabbitmq: ${why}; the management plugin's URL is written as http://user:password@host:15672`);
  if (!URL.canParse(text)) throw wrong("the management URL cannot be understood");
  const url = new URL(text);
  if (url.protocol !== "http:" && url.protocol !== "https:") throw wrong(`the management URL begins with ${url.protocol}`);
  const tls = tlsOf(url.searchParams, url.protocol === "https:", "https");
  const known = url.username !== "" || url.password !== "";
  return {
    origin: new URL(url.pathname.replace(/\/?$/, "/"), url.origin),
    user: known ? decoded(url.username, "the user") : null,
    password: known ? decoded(url.password, "the password") : null,
    tls,
  };
}

function tlsOf(search: URLSearchParams, encrypted: boolean, scheme: string): Tls {
  for (const name of search.keys()) {
    if (!files.includes(name)) throw bad(`the URL has a parameter ${JSON.stringify(name)}, and may have ${files.join(", ")}`);
  }
  if (!encrypted && search.size > 0) throw bad(`ca, cert and key are for ${scheme}: URLs`);
  if (search.has("cert") !== search.has("key")) throw bad("cert and key come together");
  return encrypted ? Object.fromEntries([...search].map(([name, path]) => [name, read(name, path)])) : null;
}

function addressOf(place: string, usual: number): Address {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/i.exec(place) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || Number(port) > 65_535) throw bad("a server is written as host or host:port");
  return { host, port: port === undefined ? usual : Number(port) };
}

function loginOf(login: string): [string, string] {
  const [user = "", ...rest] = login.split(":");
  return [decoded(user, "the user"), decoded(rest.join(":"), "the password")];
}

function decoded(text: string, what: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw bad(`${what} is not percent-encoded as it should be`);
  }
}

function read(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw bad(`the file ${JSON.stringify(path)}, given as ${name}, cannot be read`, cause);
  }
}
