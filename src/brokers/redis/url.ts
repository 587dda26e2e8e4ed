import { WaybillError } from "../../core/errors.ts";
import { urlParts, type Tls } from "../kit/url.ts";

export interface ServerAddress {
  readonly host: string;
  readonly port: number;
  readonly tls: Tls;
  readonly username: string | null;
  readonly password: string | null;
  readonly database: number;
  /** The URL as it may be shown: without user and password. */
  readonly shown: string;
}

const bad = (why: string, cause?: unknown): WaybillError =>
  new WaybillError("BAD_URL", `redis: ${why}; a URL is written as redis://user:password@host:6379/0`, { cause });
const { decoded, tlsOf } = urlParts(bad);

/** `redis:` is not encrypted, `rediss:` is, and verified. The path is the database's number. */
export function placeOf(text: string): ServerAddress {
  if (!URL.canParse(text)) throw bad("the URL cannot be understood");
  const url = new URL(text);
  const { protocol, hostname, searchParams: search } = url;
  if ((protocol !== "redis:" && protocol !== "rediss:") || hostname === "" || url.hash !== "") throw bad("the URL cannot be understood");
  const tls = tlsOf(search, protocol === "rediss:", "rediss");
  if (!/^\/?\d{0,6}$/.test(url.pathname)) throw bad("after the host comes the number of a database");
  const port = url.port === "" ? 6379 : Number(url.port);
  const database = Number(url.pathname.slice(1));
  return {
    host: hostname.replace(/^\[(.*)\]$/, "$1"),
    port,
    tls,
    username: url.username === "" ? null : decoded(url.username),
    password: url.username === "" && url.password === "" ? null : decoded(url.password),
    database,
    shown: `${protocol}//${hostname}:${port}/${database}`,
  };
}
