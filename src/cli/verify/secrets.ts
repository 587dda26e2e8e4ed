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
  /** How many secrets are words that are shown anyway, such as the name of the database. A leak of these could not be recognised. */
  readonly common: number;
}

/** The secrets of these URLs, except those that also occur in `shown` or in the redacted URLs. */
export function canariesOf(urls: readonly string[], shown: string, adapters = table): Canaries {
  const all = [...new Set(urls.flatMap((url) => secretsOf(url, adapters)))];
  const open = [...urls.map((url) => redact(url, adapters)), shown].join("\n");
  const looked = all.filter((one) => !open.includes(one));
  return { looked, common: all.length - looked.length };
}
