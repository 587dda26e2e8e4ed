import { readFileSync } from "node:fs";
import { WaybillError } from "../../core/errors.ts";

export interface Place {
  readonly host: string;
  readonly port: number;
  /** Null for a connection that is not encrypted; otherwise it is verified, by the system's authorities or by those given (PEM). */
  readonly tls: { readonly ca?: string; readonly cert?: string; readonly key?: string } | null;
  readonly username: string | null;
  readonly password: string | null;
  readonly database: number;
  /** As it may be shown: without whoever connects. */
  readonly shown: string;
}

const files: readonly string[] = ["ca", "cert", "key"];

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `redis: ${why}; a URL is written as redis://user:password@host:6379/0`, { cause });

/** `redis:` is not encrypted, `rediss:` is, and verified. The path is the database's number. */
export function placeOf(text: string): Place {
  const url = parse(text);
  const { protocol, hostname, searchParams: search } = url;
  if ((protocol !== "redis:" && protocol !== "rediss:") || hostname === "" || url.hash !== "") throw bad("the URL cannot be understood");
  for (const name of search.keys()) {
    if (!files.includes(name)) throw bad(`the URL has a parameter ${JSON.stringify(name)}, and may have ${files.join(", ")}`);
  }
  if (protocol === "redis:" && search.size > 0) throw bad("ca, cert and key are for rediss: URLs");
  if (search.has("cert") !== search.has("key")) throw bad("cert and key come together");
  if (!/^\/?\d{0,6}$/.test(url.pathname)) throw bad("after the host comes the number of a database");
  const port = url.port === "" ? 6379 : Number(url.port);
  const database = Number(url.pathname.slice(1));
  return {
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port,
    tls: protocol === "redis:" ? null : Object.fromEntries([...search].map(([name, path]) => [name, read(name, path)])),
    username: url.username === "" ? null : decoded(url.username),
    password: url.username === "" && url.password === "" ? null : decoded(url.password),
    database,
    shown: `${protocol}//${hostname}:${port}/${database}`,
  };
}

function parse(text: string): URL {
  try {
    return new URL(text);
  } catch {
    throw bad("the URL cannot be understood"); // the cause would show it
  }
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    throw bad("the user or the password is not percent-encoded as it should be");
  }
}

function read(name: string, path: string): string {
  try {
    return readFileSync(path, "utf8");
  } catch (cause) {
    throw bad(`the file ${JSON.stringify(path)}, given as ${name}, cannot be read`, cause);
  }
}
