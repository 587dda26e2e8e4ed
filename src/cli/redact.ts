import { adapterOf, adapters as table } from "./adapters.ts";

/** A URL as it may be shown: the place stays readable, who and with which secret does not. */
export function redact(url: string, adapters = table): string {
  const isPath = adapterOf(url, adapters)?.server === null && !/^[^:]*:\/\//.test(url);
  const isUrl = /^[a-z][a-z0-9+.-]*:/i.test(url);
  // Half a URL, or settings of another program: who knows where its secret ends.
  if (!isUrl && /[@=]/.test(url)) return "***";
  if (isUrl && !isPath && !url.includes("://") && url.includes("=")) return url.replace(/:.*/s, ":***");
  const shown = isPath ? url : url.replace(/^([a-z][a-z0-9+.-]*:(?:\/\/)?).*@/is, "$1***@");
  const [place = "", ...queries] = shown.split("?");
  return queries.length === 0 ? place : `${place}?${queries.join("?").replace(/=[^&#]*/g, "=***")}`;
}

const secretName = /pass|pwd|secret|token|key|auth|credential|signature/i;

/**
 * The same for URLs anywhere in a text, such as an error that a client wrote. A password may hold "@" or "/" that
 * nobody escaped, so everything up to the last "@" of the word goes. Texts come from outside and may be long: no pattern here begins a
 * second time within what it has already read.
 */
export function redactText(text: string): string {
  return text
    .replace(/[^\s"'`]+/g, withoutLogin)
    .replace(/([?&;][\w.-]*=)([^&;\s"'`]*)/g, (pair, name: string) => (secretName.test(name) ? `${name}***` : pair));
}

function withoutLogin(word: string): string {
  const end = word.lastIndexOf("@");
  for (let at = word.indexOf("://"); at !== -1 && at + 3 <= end; at = word.indexOf("://", at + 3)) {
    if (endsWithScheme(word, at)) return `${word.slice(0, at + 3)}***${word.slice(end)}`;
  }
  return word;
}

/** Is there a letter among the characters of a scheme that end here? */
function endsWithScheme(word: string, end: number): boolean {
  for (let at = end - 1; at >= 0; at--) {
    const c = word[at]!;
    if (/[a-z]/i.test(c)) return true;
    if (!/[0-9+.-]/.test(c)) return false;
  }
  return false;
}
