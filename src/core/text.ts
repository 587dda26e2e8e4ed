/** Controls (C0, DEL and C1, which some terminals obey like an escape), line ends, and marks that turn the reading order. */
const unseen = /[\u0000-\u001f\u007f-\u009f\u061c\u200e\u200f\u2028-\u202e\u2066-\u2069]/g;
const short = new Map([
  ["\n", "\\n"],
  ["\r", "\\r"],
  ["\t", "\\t"],
]);

/** As it may be shown on a terminal. Twice is the same as once. */
export function visible(text: string): string {
  return text.replace(unseen, (c) => short.get(c) ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`);
}

export const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** "1 event", "2 events". */
export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;

const secretName = /pass|pwd|secret|token|key|auth|credential|signature/i;

/**
 * Hides logins and secret parameters of URLs anywhere in a text, such as an error that a client wrote. A password may hold "@" or "/" that
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

/** One word of a command line, whatever a shell would make of it. */
export const shellWord = (text: string): string => (/^[\w.@:/^+-]+$/.test(text) ? text : `'${text.replaceAll("'", "'\\''")}'`);
