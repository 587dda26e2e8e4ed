import { readFileSync } from "node:fs";

export interface Address {
  readonly host: string;
  readonly port: number;
}

export const written = ({ host, port }: Address): string => `${host.includes(":") ? `[${host}]` : host}:${port}`;

/** Null for an unencrypted connection. Otherwise the server is verified, by the system's authorities or by those given (PEM). */
export type Tls = { readonly ca?: string; readonly cert?: string; readonly key?: string } | null;

export const tlsFiles: readonly string[] = ["ca", "cert", "key"];

/** Parsing that all brokers' URLs share; `bad` makes the adapter's own error. */
export function urlParts(bad: (why: string, cause?: unknown) => Error, server = "server") {
  const fileOf = (name: string, path: string): Buffer => {
    try {
      return readFileSync(path);
    } catch (cause) {
      throw bad(`the file ${JSON.stringify(path)}, given as ${name}, cannot be read`, cause);
    }
  };
  return {
    fileOf,
    /** `host`, `host:port` or `[::1]:port`. */
    addressOf(place: string, usualPort: number): Address {
      const [, bracketed, plain, port] = /^(?:\[([0-9a-f:.]+)\]|([^:[\]\s]+))(?::(\d{1,5}))?$/i.exec(place) ?? [];
      const host = bracketed ?? plain;
      if (host === undefined || Number(port) > 65_535) throw bad(`a ${server} is written as host or host:port`);
      return { host, port: port === undefined ? usualPort : Number(port) };
    },
    decoded(text: string, what = "the user or the password"): string {
      try {
        return decodeURIComponent(text);
      } catch {
        throw bad(`${what} is not percent-encoded as it should be`);
      }
    },
    /** Reads the certificates. Refuses them unless `encrypted`, and parameters that are not `known`. `scheme` is that of encrypted URLs. */
    tlsOf(search: URLSearchParams, encrypted: boolean, scheme: string, known = tlsFiles): Tls {
      for (const name of search.keys())
        if (!known.includes(name)) throw bad(`the URL has a parameter ${JSON.stringify(name)}, and may have ${known.join(", ")}`);
      const named = [...search].filter(([name]) => tlsFiles.includes(name));
      if (!encrypted && named.length > 0) throw bad(`ca, cert and key are for ${scheme}: URLs`);
      if (search.has("cert") !== search.has("key")) throw bad("cert and key come together");
      return encrypted ? Object.fromEntries(named.map(([name, path]) => [name, fileOf(name, path).toString()])) : null;
    },
  };
}
