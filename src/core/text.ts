/** Control characters (C0, DEL and C1, which some terminals obey like an escape), line ends, and marks that change the reading order. */
const unseen = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const short = new Map([
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
]);

/** The text as it may be shown on a terminal. Idempotent. */
export function visible(text: string): string {
  return text.replace(unseen, escaped);
}

/** The same, with its line ends and tabs. */
export const legible = (text: string): string => text.replace(unseen, (c) => (c === "\n" || c === "\t" ? c : escaped(c)));

const escaped = (c: string): string => short.get(c) ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;

export const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** "1 event", "2 events". */
export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

const secretName = /pass|pwd|secret|token|key|auth|credential|signature/i;

/**
 * Hides logins and secret parameters of URLs anywhere in a text, such as an error of a client library. A password may hold an unescaped
 * "@" or "/", so everything up to the last "@" of the word is hidden. Texts come from outside and may be long: no pattern here begins a
 * second time within text that it has already read.
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

/** Quotes the text where needed, so that a shell takes it as one word. */
export const shellWord = (text: string): string => (/^[\w.@:/^+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);

/** As one word of a shell. Writers choose names, and operators copy the commands that messages suggest. */
export const asWord = (text: string): string => (/^[\w.,:@%+=/…-]+$/.test(text) ? text : `'${text.replaceAll("'", String.raw`'\''`)}'`);

/** In the largest unit that fits, with one digit after the point. */
export function inBytes(bytes: number): string {
  const units = ["B", "KiB", "MiB", "GiB", "TiB"];
  const step = Math.min(units.length - 1, Math.floor(Math.log2(Math.max(1, bytes)) / 10));
  return `${Number((bytes / 1024 ** step).toFixed(1))} ${units[step]!}`;
}
