import type { Server } from "../contracts/adapter.ts";
import type { Rule } from "../contracts/doctor.ts";
import { BESIDE_PAYLOAD_BYTES, DEFAULT_MAX_PAYLOAD_BYTES } from "../core/draft.ts";
import { isLoopback } from "../core/loopback.ts";

/** How the store and the broker fit together. */
export interface PathAnswers {
  /** The size of the largest message that the broker takes. */
  readonly maxBytes: number;
  readonly topics: readonly string[];
}

const needed = DEFAULT_MAX_PAYLOAD_BYTES + BESIDE_PAYLOAD_BYTES;

export const pathRules: readonly Rule<PathAnswers>[] = [
  {
    setting: "largest message",
    badWhen: "the broker takes less than an outbox adds: 256 KiB with 20 KiB for headers",
    breaks: "L",
    remedy: "raise the broker's limit, or lower `maxPayloadBytes`",
    look({ maxBytes }, { good, bad }) {
      const value = Number.isFinite(maxBytes) && maxBytes < Number.MAX_SAFE_INTEGER ? `${maxBytes} bytes` : "no limit";
      if (maxBytes >= needed)
        return good(value, `An event of the default limit (${DEFAULT_MAX_PAYLOAD_BYTES} bytes, maxPayloadBytes) fits with its headers.`);
      const most = Math.max(1, maxBytes - BESIDE_PAYLOAD_BYTES);
      return bad(value, `Events with up to ${DEFAULT_MAX_PAYLOAD_BYTES} bytes are added, and those that the broker does not take die`, {
        remedy: `raise its limit to ${needed} bytes, or create outboxes with maxPayloadBytes: ${most} or less`,
      });
    },
  },
  {
    setting: "topics",
    badWhen: "unknown when you give none and the outbox is empty",
    breaks: "",
    remedy: "name them with `--topics`",
    look({ topics }, { good, unknown }) {
      if (topics.length > 0) return good(topics.join(", "), "The broker was asked about each of them.");
      return unknown(null, "No topic was given and the outbox has no events to tell one: name them with --topics A,B.");
    },
  },
];

/** How a server is reached. Clients read settings from the environment. */
export interface WayAnswers {
  readonly url: string;
  readonly server: Server;
  readonly env: Readonly<Record<string, string | undefined>>;
}

export const wayRules: readonly Rule<WayAnswers>[] = [
  {
    setting: "encryption",
    badWhen: "never; unknown when the connection to another machine is in plain text, or is encrypted without verifying the server",
    breaks: "",
    remedy: "`sslmode=verify-full` for PostgreSQL, MariaDB and MySQL; `kafkas:`, `amqps:`, `tls:` (NATS) or `rediss:`",
    /** Doctor cannot know whether the network in between is private, so plain text is never `bad`. */
    look({ url, server, env }, { good, unknown }) {
      const far = hostsOf(url).filter((host) => !isHere(host));
      if (far.length === 0) return good("not needed", "The server is on this machine.");
      const guard = server.guard(url, env);
      if (guard === "verified") return good("verified", "Nobody on the way can read or change what is sent.");
      const who = guard === "none" ? "Whoever is on the network in between" : "Whoever can answer in the server's place";
      return unknown(
        `${guard === "none" ? "none" : "not verified"}, to ${far.join(", ")}`,
        `${who} can read events and the password, and can add, change and drop events, which no promise survives: ${server.remedy}, unless nobody else can reach that network.`,
      );
    },
  },
];

/** The hosts of `scheme://user:password@a:1,[::1]:2/path`. As in the adapters, a login ends at the last "@" before the path. */
function hostsOf(text: string): readonly string[] {
  const [, places = ""] = /^[a-z][a-z0-9+.-]*:\/\/(?:[^/?#]*@)?([^/?#]*)/i.exec(text) ?? [];
  return places.split(",").map((place) => place.replace(/:\d*$/, "").replace(/^\[|\]$/g, ""));
}

/** A Unix socket is a path, which a URL holds with its slashes escaped. */
const isHere = (host: string): boolean => host === "" || /^(%2f|\/)/i.test(host) || isLoopback(host);
