import { readFileSync } from "node:fs";
import { WaybillError } from "../../core/errors.ts";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export type Mechanism = "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";

export interface Settings {
  /** Where to ask first; the brokers tell of each other. */
  readonly addresses: readonly Address[];
  readonly sasl: { readonly mechanism: Mechanism; readonly user: string; readonly password: string } | null;
  /** Null for connections that are not encrypted; otherwise they are verified, by the system's authorities or by those given (PEM). */
  readonly tls: { readonly ca?: string; readonly cert?: string; readonly key?: string } | null;
  /** As it may be shown: without whoever connects. */
  readonly shown: string;
}

const files = ["ca", "cert", "key"] as const;
const parameters: readonly string[] = ["sasl", "tls", ...files];
const mechanisms: Readonly<Record<string, Mechanism>> = {
  plain: "PLAIN",
  "scram-sha-256": "SCRAM-SHA-256",
  "scram-sha-512": "SCRAM-SHA-512",
};

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `kafka: ${why}; a URL is written as kafka://user:password@host:9092,host2:9092?sasl=scram-sha-512`, {
    cause,
  });

/** `kafka:` is not encrypted, `kafkas:` is, and verified, and so is `kafka:` with `tls=true`. Several brokers are written with commas. */
export function settingsOf(text: string): Settings {
  const [, scheme, login, places = "", query = ""] = /^(kafkas?):\/\/(?:([^@/?#]*)@)?([^@/?#]+)\/?(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) throw bad("the URL cannot be understood");
  const search = new URLSearchParams(query);
  for (const name of search.keys()) {
    if (!parameters.includes(name)) throw bad(`the URL has a parameter ${JSON.stringify(name)}, and may have ${parameters.join(", ")}`);
  }
  const encrypted = tlsIn(search, scheme.toLowerCase() === "kafkas");
  if (!encrypted && files.some((name) => search.has(name))) throw bad("ca, cert and key are for kafkas: URLs");
  if (search.has("cert") !== search.has("key")) throw bad("cert and key come together");
  const given = files.flatMap((name) => (search.has(name) ? [[name, fileOf(name, search.get(name)!)] as const] : []));
  const addresses = places.split(",").map(addressOf);
  return {
    addresses,
    sasl: saslOf(login ?? "", search.get("sasl")),
    tls: encrypted ? Object.fromEntries(given) : null,
    shown: `${encrypted ? "kafkas" : "kafka"}://${addresses.map(written).join(",")}`,
  };
}

function tlsIn(search: URLSearchParams, scheme: boolean): boolean {
  const said = search.get("tls");
  if (said === null) return scheme;
  if (said !== "true" && said !== "false") throw bad("tls is true or false");
  if (scheme && said === "false") throw bad("kafkas: means TLS, and tls=false does not: write kafka: without it");
  return said === "true";
}

function addressOf(place: string): Address {
  const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/i.exec(place) ?? [];
  const host = bracketed ?? plain;
  if (host === undefined || Number(port) > 65_535) throw bad("a broker is written as host or host:port");
  return { host, port: port === undefined ? 9092 : Number(port) };
}

export const written = ({ host, port }: Address): string => `${host.includes(":") ? `[${host}]` : host}:${port}`;

function saslOf(login: string, named: string | null): Settings["sasl"] {
  if (named !== null && !Object.hasOwn(mechanisms, named.toLowerCase())) {
    throw bad(`sasl=${JSON.stringify(named)} is none of ${Object.keys(mechanisms).join(", ")}`);
  }
  if (login === "") {
    if (named !== null) throw bad("sasl needs a user and a password before the host");
    return null;
  }
  if (named === null) throw bad("with a user and a password comes how they are checked: sasl=scram-sha-512, scram-sha-256 or plain");
  const [first = "", ...rest] = login.split(":");
  try {
    return { mechanism: mechanisms[named.toLowerCase()]!, user: decodeURIComponent(first), password: decodeURIComponent(rest.join(":")) };
  } catch {
    throw bad("the user or the password is not percent-encoded as it should be");
  }
}

function fileOf(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw bad(`the file ${JSON.stringify(path)}, given as ${name}, cannot be read`, cause);
  }
}
