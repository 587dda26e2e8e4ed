import { asError } from "../../core/errors.ts";
import type { Draft } from "../../core/event.ts";
import { usage } from "../usage.ts";

/** One token at a time: a pattern for a whole string would exhaust the stack on a long one. */
const tokens = /\\.|"|-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/gs;

/**
 * A JSON text as a draft's payload. JavaScript would change a number of more than 15 digits, so a text
 * with one is stored as its own bytes.
 */
export function exactJson(text: string): Pick<Draft, "payload" | "contentType"> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    return usage(`the payload is not JSON: ${asError(cause).message}`, cause);
  }
  return isExact(text) ? { payload: value } : { payload: Buffer.from(text, "utf8"), contentType: "application/json" };
}

function isExact(text: string): boolean {
  let quoted = false;
  for (const [token] of text.matchAll(tokens)) {
    if (token === '"') quoted = !quoted;
    else if (!quoted && !(Number.isFinite(Number(token)) && significant(token) <= 15)) return false;
  }
  return true;
}

function significant(digits: string): number {
  return digits
    .replace(/[eE].*$/, "")
    .replace(/[-.]/g, "")
    .replace(/^0+/, "").length;
}
