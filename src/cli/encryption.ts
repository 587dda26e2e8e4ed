import type { Adapter } from "../contracts/adapter.ts";
import { good, unknown, type Finding } from "../core/finding.ts";
import { isLoopback } from "./loopback.ts";
import type { Named } from "./url.ts";

const setting = "encryption";

/**
 * Whether somebody on the way to the server could read or change what is sent; null for a file. Whether somebody is there we cannot know, so
 * that plain text is never called bad.
 */
export function encryption(
  { text, adapter: { server } }: Named<Adapter>,
  env: Readonly<Record<string, string | undefined>>,
): Finding | null {
  if (server === null) return null;
  const far = hostsOf(text).filter((host) => !isHere(host));
  if (far.length === 0) return good(setting, "not needed", "The server is on this machine.");
  const guard = server.guard(text, env);
  if (guard === "verified") return good(setting, "verified", "Nobody on the way can read or change what is sent.");
  const value = `${guard === "none" ? "none" : "not verified"}, to ${far.join(", ")}`;
  const who = guard === "none" ? "Whoever is on the network in between" : "Whoever can answer in the server's place";
  return unknown(
    setting,
    value,
    `${who} can read events and the password, and can add, change and drop events, which no promise survives: ${server.remedy}, unless nobody else can reach that network.`,
  );
}

/** Of `scheme://user:password@a:1,[::1]:2/path`: where a login ends is where the adapters say, at the last "@" before the path. */
function hostsOf(text: string): readonly string[] {
  const [, places = ""] = /^[a-z][a-z0-9+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(text) ?? [];
  return places.split(",").map((place) => place.replace(/:\d*$/, "").replace(/^\[|\]$/g, ""));
}

/** A socket is a path, which a URL holds with its slashes escaped. */
const isHere = (host: string): boolean => host === "" || /^(%2f|\/)/i.test(host) || isLoopback(host);
