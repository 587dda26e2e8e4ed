import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import { adapterOf, adapters as table } from "../adapters.ts";
import { redact } from "../redact.ts";

/** Parameters that name files: a file's path is no secret. */
const files = new Set(["ca", "cert", "key", "credentials", "sslkey", "sslcert", "sslrootcert"]);
const secret = /pass|pwd|secret|token|key|auth|credential|signature/i;
/** A shorter secret would appear in texts by chance. */
const shortest = 4;

/** The parts of a URL that must never be shown: passwords, tokens, and parameters that are named like secrets. */
export function secretsOf(url: string, adapters = table): readonly string[] {
  const [, scheme, login = ""] = /^([a-z][a-z0-9+.-]*):\/\/(?:([^/?#]*)@)?/i.exec(url) ?? [];
  if (scheme === undefined) return [];
  const [user = "", ...rest] = login.split(":");
  const isToken = adapterOf(url, adapters)?.server?.token === true && rest.length === 0;
  const query = /\?([^#]*)/.exec(url)?.[1] ?? "";
  const parameters = query.split("&").flatMap((pair) => {
    const [name = "", ...value] = pair.split("=");
    return secret.test(name) && !files.has(name.toLowerCase()) ? [value.join("=")] : [];
  });
  const written = [isToken ? user : rest.join(":"), ...parameters];
  return [...new Set(written.flatMap((text) => [text, decoded(text)]))].filter((text) => text.length >= shortest);
}

function decoded(text: string): string {
  try {
    return decodeURIComponent(text);
  } catch {
    return text;
  }
}

interface Canaries {
  readonly looked: readonly string[];
  /** Those that are words which come out anyway, such as the name of the database. They are looked for where only a secret stands. */
  readonly common: readonly string[];
}

/**
 * All texts of this package: its output is made of them. A password that is one of their words says nothing by coming out, such as the
 * quick starts' own, which is "waybill".
 */
export function ownText(): string {
  const home = fileURLToPath(new URL("../../", import.meta.url));
  const code = readdirSync(home, { recursive: true, encoding: "utf8" }).filter((name) => /\.[jt]s$/.test(name) && !name.endsWith(".d.ts"));
  return code.map((name) => readFileSync(join(home, name), "utf8")).join("\n");
}

/** The secrets of these URLs, apart from each other by whether they also occur in `shown` or in the redacted URLs. */
export function canariesOf(urls: readonly string[], shown: string, adapters = table): Canaries {
  const all = [...new Set(urls.flatMap((url) => secretsOf(url, adapters)))];
  const open = [...urls.map((url) => redact(url, adapters)), shown].join("\n");
  const looked = all.filter((one) => !open.includes(one));
  return { looked, common: all.filter((one) => open.includes(one)) };
}
