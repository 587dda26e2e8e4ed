import type { Facts } from "./facts.ts";
import { trial, unknown, type Verdict } from "./verdict.ts";

/** X: a secret that was given to the run is in none of its outputs, plain, URL-encoded or JSON-escaped, nor in the history. */
export function noSecrets({ reads, history }: Facts): Verdict {
  if (reads.outputs === null) return unknown("no secrets", "no output was kept");
  const { canaries, commonCanaries = [] } = reads;
  if (canaries.length + commonCanaries.length === 0)
    return unknown("no secrets", "no secret was given to the run, so that none could come out");
  const { broken, verdict } = trial("no secrets");
  const outputs = [...reads.outputs, { where: "the history", text: JSON.stringify(history) }];
  const looks = [...canaries.map((canary) => includes(canary)), ...commonCanaries.map((canary) => standsIn(canary))];
  for (const [index, isIn] of looks.entries())
    for (const { where, text } of outputs)
      // The example must not quote the secret either.
      if (isIn(text)) broken(text.length, `secret ${index + 1} came out in ${where}`, []);
  return verdict();
}

type IsIn = (text: string) => boolean;

const spellingsOf = (secret: string): readonly string[] => [secret, encodeURIComponent(secret), JSON.stringify(secret).slice(1, -1)];

const includes = (secret: string): IsIn => {
  const spellings = spellingsOf(secret);
  return (text) => spellings.some((spelling) => text.includes(spelling));
};

const secretName = "(?:pass|pwd|secret|token|credential|auth|signature|api_?key)";

/** For a secret such as "waybill", which our output contains by itself: in a URL's login, and after the name of a secret. */
function standsIn(secret: string): IsIn {
  const any = spellingsOf(secret)
    .map((spelling) => spelling.replace(/[\\^$.*+?()[\]{}|/-]/g, "\\$&"))
    .join("|");
  const login = `://[^\\s/@]*:(?:${any})@`;
  const named = `${secretName}\\w*\\\\?["']?\\s*(?:[:=]|\\bis\\b)?\\s*\\\\?["']?(?:${any})(?![\\w-])`;
  const pattern = new RegExp(`${login}|${named}`, "i");
  return (text) => pattern.test(text);
}
