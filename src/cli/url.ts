import { WaybillError } from "../core/errors.ts";
import { redact } from "./redact.ts";

export type Role = "store" | "broker";

/** A URL in its two halves, before anything is known of what it names. */
export interface Url {
  readonly text: string;
  readonly role: Role;
  readonly scheme: string;
  readonly rest: string;
  /** How a URL of this role is written. */
  readonly example: string;
}

/** Which scheme belongs to which role, for all that there are and those that others have. */
export type Schemes = Readonly<Record<string, Role>>;

/** Refuses what this version has no adapter for; a URL of the other role is told apart from one of nobody. */
export function readUrl(text: string, role: Role, ours: readonly string[], known: Schemes): Url {
  const [, given, rest = ""] = /^([a-z][a-z0-9+.-]*):(.*)$/is.exec(text) ?? [];
  const example = role === "store" ? "sqlite:./app.db" : "embedded:./broker.db";
  const url = { text, role, scheme: given?.toLowerCase() ?? "", rest, example };
  if (given === undefined) return refuseUrl(url, `is not a URL: write it as ${example}`);
  if (ours.includes(url.scheme)) return url;
  const other = Object.hasOwn(known, url.scheme) ? known[url.scheme] : undefined;
  if (other !== undefined && other !== role) return refuseUrl(url, `is the URL of a ${other}: a ${role} is written as ${example}`);
  throw new WaybillError(
    "BAD_URL",
    `--${role} ${shown(url)}: this version has no adapter for ${url.scheme}:, only ${ours.map((one) => `${one}:`).join(", ")} (${example})`,
  );
}

export function refuseUrl(url: Pick<Url, "text" | "role">, why: string): never {
  throw new WaybillError("BAD_URL", `--${url.role} ${shown(url)} ${why}`);
}

const shown = ({ text }: Pick<Url, "text">): string => JSON.stringify(redact(text));
