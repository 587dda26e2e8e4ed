import { WaybillError } from "../../core/errors.ts";
import { tlsFiles, urlParts, written, type Address, type Tls } from "../kit/url.ts";

type Mechanism = "PLAIN" | "SCRAM-SHA-256" | "SCRAM-SHA-512";

export interface Settings {
  /** Where to connect first; the brokers report each other's addresses. */
  readonly addresses: readonly Address[];
  readonly sasl: { readonly mechanism: Mechanism; readonly user: string; readonly password: string } | null;
  readonly tls: Tls;
  /** Safe to show: without user and password. */
  readonly shown: string;
}

const parameters = ["sasl", "tls", ...tlsFiles];
const mechanisms: Readonly<Record<string, Mechanism>> = {
  plain: "PLAIN",
  "scram-sha-256": "SCRAM-SHA-256",
  "scram-sha-512": "SCRAM-SHA-512",
};

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `kafka: ${why}; a URL is written as kafka://user:password@host:9092,host2:9092?sasl=scram-sha-512`, {
    cause,
  });
const { addressOf, decoded, tlsOf } = urlParts(bad, "broker");

/** `kafka:` is not encrypted. `kafkas:`, or `kafka:` with `tls=true`, is encrypted and verified. Commas separate several brokers. */
export function settingsOf(text: string): Settings {
  const [, scheme, login, places = "", query = ""] = /^(kafkas?):\/\/(?:([^@/?#]*)@)?([^@/?#]+)\/?(?:\?([^#]*))?$/i.exec(text) ?? [];
  if (scheme === undefined) throw bad("the URL cannot be understood");
  const search = new URLSearchParams(query);
  const encrypted = tlsIn(search, scheme.toLowerCase() === "kafkas");
  const tls = tlsOf(search, encrypted, "kafkas", parameters);
  const addresses = places.split(",").map((place) => addressOf(place, 9092));
  return {
    addresses,
    sasl: saslOf(login ?? "", search.get("sasl")),
    tls,
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
  return { mechanism: mechanisms[named.toLowerCase()]!, user: decoded(first), password: decoded(rest.join(":")) };
}
