import { good, unknown, type Finding } from "../core/finding.ts";
import { isLoopback } from "./loopback.ts";
import type { Url } from "./url.ts";

const setting = "encryption";
/** Schemes that mean verified encryption. */
const encrypted = new Set(["amqps", "kafkas", "tls", "rediss"]);
/** How each is asked for, by scheme. */
const remedies = new Map([
  ["postgres", "add sslmode=verify-full to the URL"],
  ["postgresql", "add sslmode=verify-full to the URL"],
  ["mysql", "add sslmode=verify-full to the URL"],
  ["mariadb", "add sslmode=verify-full to the URL"],
  ["kafka", "write the URL with kafkas:"],
  ["amqp", "write the URL with amqps:"],
  ["nats", "write the URL with tls:"],
  ["redis", "write the URL with rediss:"],
]);

type Guard = "verified" | "unverified" | "none";

/**
 * Whether somebody on the way to the server could read or change what is sent; null for a file. Whether somebody is there we cannot know, so
 * that plain text is never called bad.
 */
export function encryption(
  { text, scheme }: Pick<Url, "text" | "scheme">,
  env: Readonly<Record<string, string | undefined>>,
): Finding | null {
  const remedy = remedies.get(scheme);
  if (remedy === undefined && !encrypted.has(scheme)) return null;
  const far = hostsOf(text).filter((host) => !isHere(host));
  if (far.length === 0) return good(setting, "not needed", "The server is on this machine.");
  const guard = encrypted.has(scheme) ? "verified" : guardOf(scheme, text, env);
  if (guard === "verified") return good(setting, "verified", "Nobody on the way can read or change what is sent.");
  const value = `${guard === "none" ? "none" : "not verified"}, to ${far.join(", ")}`;
  const who = guard === "none" ? "Whoever is on the network in between" : "Whoever can answer in the server's place";
  return unknown(
    setting,
    value,
    `${who} can read events and the password, and can add, change and drop events, which no promise survives: ${remedy ?? ""}, unless nobody else can reach that network.`,
  );
}

function guardOf(scheme: string, text: string, env: Readonly<Record<string, string | undefined>>): Guard {
  const search = new URLSearchParams(/\?([^#]*)/.exec(text)?.[1] ?? "");
  if (scheme === "kafka") return search.get("tls") === "true" ? "verified" : "none";
  const fromEnv = scheme.startsWith("postgres") ? env["PGSSLMODE"] : undefined;
  const mode = search.get("sslmode") ?? (search.has("sslrootcert") ? "verify-full" : fromEnv);
  if (mode === "no-verify") return "unverified";
  return mode !== undefined && ["prefer", "require", "verify-ca", "verify-full"].includes(mode) ? "verified" : "none";
}

/** Of `scheme://user:password@a:1,[::1]:2/path`: where a login ends is where the adapters say, at the last "@" before the path. */
function hostsOf(text: string): readonly string[] {
  const [, places = ""] = /^[a-z][a-z0-9+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(text) ?? [];
  return places.split(",").map((place) => place.replace(/:\d*$/, "").replace(/^\[|\]$/g, ""));
}

/** A socket is a path, which a URL holds with its slashes escaped. */
const isHere = (host: string): boolean => host === "" || /^(%2f|\/)/i.test(host) || isLoopback(host);
