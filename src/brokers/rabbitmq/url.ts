import { WaybillError } from "../../core/errors.ts";
import { urlParts, written, type Address, type Tls } from "../kit/url.ts";

export interface Settings {
  /** Nodes of one cluster. */
  readonly addresses: readonly Address[];
  readonly user: string;
  readonly password: string;
  readonly vhost: string;
  readonly tls: Tls;
  /** The URL as it may be shown: without user and password. */
  readonly shown: string;
}

const example = "amqp://user:password@host:5672/vhost";

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `rabbitmq: ${why}; a URL is written as ${example}`, { cause });
const { addressOf, decoded, tlsOf } = urlParts(bad);

/** `amqp:` is not encrypted, `amqps:` is encrypted and verified. Several nodes of one cluster are written with commas. */
export function settingsOf(text: string): Settings {
  const [, scheme, login, places = "", path = "", query = ""] =
    /^(amqps?):\/\/(?:([^@/?#]*)@)?([^@/?#]+)(?:\/([^/?#]*))?(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) throw bad("the URL cannot be understood");
  const encrypted = scheme.toLowerCase() === "amqps";
  const tls = tlsOf(new URLSearchParams(query), encrypted, "amqps");
  const addresses = places.split(",").map((place) => addressOf(place, encrypted ? 5671 : 5672));
  const [user = "guest", password = ""] = login === undefined || login === "" ? ["guest", "guest"] : loginOf(login);
  const vhost = path === "" ? "/" : decoded(path, "the virtual host");
  return { ...{ addresses, user, password, vhost, tls }, shown: shownAt(addresses[0]!, vhost, tls) };
}

/** The URL of one node as it may be shown: a command can be run with it, once user and password are added. */
export const shownAt = (address: Address, vhost: string, tls: Tls): string =>
  `${tls === null ? "amqp" : "amqps"}://${written(address)}${vhost === "/" ? "" : `/${encodeURIComponent(vhost)}`}`;

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

function loginOf(login: string): [string, string] {
  const [user = "", ...rest] = login.split(":");
  return [decoded(user, "the user"), decoded(rest.join(":"), "the password")];
}
