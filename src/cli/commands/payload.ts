import { asError, WaybillError } from "../../core/errors.ts";
import type { Draft } from "../../core/event.ts";

const string = /"(?:[^"\\]|\\.)*"/g;
const number = /-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?/g;

/**
 * A JSON text as a draft's payload. JavaScript would change a number of more than 15 digits, so a text
 * with one is stored as its own bytes.
 */
export function exactJson(text: string): Pick<Draft, "payload" | "contentType"> {
  let value: unknown;
  try {
    value = JSON.parse(text);
  } catch (cause) {
    throw new WaybillError("USAGE", `the payload is not JSON: ${asError(cause).message}`, { cause });
  }
  const exact = (text.replace(string, "").match(number) ?? []).every(
    (digits) => Number.isFinite(Number(digits)) && significant(digits) <= 15,
  );
  return exact ? { payload: value } : { payload: Buffer.from(text, "utf8"), contentType: "application/json" };
}

function significant(digits: string): number {
  return digits
    .replace(/[eE].*$/, "")
    .replace(/[-.]/g, "")
    .replace(/^0+/, "").length;
}
