import { isWaybillError, readSafely } from "../core/errors.ts";

const maxLength = 500;

/** An error in one bounded line, without its stack. */
export function reasonOf(error: Error): string {
  const code = readSafely(() => (isWaybillError(error) ? `${error.code}: ` : ""), "");
  return oneLine(`${code}${messageOf(error)}`);
}

/** Fit for a header, a column and a log: no control characters, no half characters, not too long. */
export function oneLine(text: string): string {
  const line = text.replace(/[\x00-\x1f\x7f-\x9f\s]+/g, " ").trim();
  const short = line.length > maxLength ? `${line.slice(0, maxLength - 1).replace(/[\ud800-\udbff]$/, "")}…` : line;
  return short.toWellFormed();
}

function messageOf(error: Error): string {
  const read = (): string => (String(error.message).trim() === "" ? String(error.name) : String(error.message));
  return readSafely(read, "an error without a readable message");
}
