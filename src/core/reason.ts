import { causesOf } from "./causes.ts";
import { isWaybillError, readSafely } from "./errors.ts";

/** Why something failed, in the parts that a row or a letter keeps. Failures of one cause have the same code and error. */
export interface Reason {
  /** What happened, without ids, numbers and other values that differ from one event to the next. */
  readonly error: string;
  /** Such as MESSAGE_TOO_LARGE, the `code` of a foreign error, or its class. @default "", where there is none */
  readonly code?: string;
  /** The whole message, where `error` leaves something out. @default "" */
  readonly detail?: string;
}

const maxLine = 500;
/** A code, and an error with its remedy behind it. Only text that plain SQL wrote is longer. */
export const maxTold = 64 + ": ".length + maxLine;
const maxDetail = 2_000;

/** The parts of an error. `names` are the event's own: its id and its aggregate's id. */
export function reasonOf(error: Error, names: readonly string[] = []): Required<Reason> {
  const root = rootOf(error);
  const text = oneLine(withoutNames(oneLine(messageOf(root), maxDetail), names));
  const whole = oneLine(wholeOf(error, root), maxDetail);
  return { code: codeOf(root), error: text, detail: text === whole ? "" : whole };
}

/** Libraries wrap the database's error. The first cause with a code of its own says more than "failed query". */
function rootOf(error: Error): Error {
  if (readSafely(() => isWaybillError(error), true)) return error;
  const coded = causesOf(error).find((cause) => cause instanceof Error && ownCodeOf(cause) !== "");
  return (coded as Error | undefined) ?? error;
}

const wholeOf = (error: Error, root: Error): string => (root === error ? messageOf(error) : `${messageOf(root)} (${messageOf(error)})`);

/** A reason in one line, as `waybill dead list` shows it. */
export const told = ({ code = "", error }: Reason): string => (code === "" ? error : `${code}: ${error}`);

/** The same with nothing left out. */
export const wholly = ({ code = "", error, detail = "" }: Reason): string => oneLine(told({ code, error: detail === "" ? error : detail }));

/** An error in one bounded line, whole, without its stack. */
export function lineOf(error: Error): string {
  const code = readSafely(() => (isWaybillError(error) ? `${error.code}: ` : ""), "");
  return oneLine(`${code}${wholeOf(error, rootOf(error))}`);
}

/** An error whose message is fit for a terminal: that of a client or a server may hold what the server, or something in its place, has sent. */
export function presentable(error: Error): Error {
  const text = messageOf(error);
  if (text.length > maxDetail || /[\x00-\x08\x0b-\x1f\x7f-\x9f]/.test(text))
    readSafely(() => Reflect.set(error, "message", oneLine(text, maxDetail)), false);
  return error;
}

/** Fit for a header, a column and a log: no control characters, no half characters, not too long. */
export function oneLine(text: string, most = maxLine): string {
  const line = text.replace(/[\x00-\x1f\x7f-\x9f\s]+/g, " ").trim();
  const short = line.length > most ? `${line.slice(0, most - 1).replace(/[\ud800-\udbff]$/, "")}…` : line;
  return short.toWellFormed();
}

function messageOf(error: Error): string {
  const read = (): string => (String(error.message).trim() === "" ? String(error.name) : String(error.message));
  return readSafely(read, "an error without a readable message");
}

const ownCodeOf = (error: Error): string => {
  const code = readSafely(() => (error as { code?: unknown }).code, "");
  return typeof code === "string" && /^[A-Za-z0-9_.-]{1,64}$/.test(code) ? code : "";
};

function codeOf(error: Error): string {
  const code = ownCodeOf(error);
  if (code !== "") return code;
  const name = readSafely(() => error.name as unknown, "");
  return typeof name === "string" && name !== "Error" && /^[A-Za-z_$][\w$]{0,63}$/.test(name) ? name : "";
}

function withoutNames(line: string, names: readonly string[]): string {
  let text = line;
  for (const name of names.filter(({ length }) => length > 0 && length <= line.length).sort((a, b) => b.length - a.length))
    text = text.replaceAll(new RegExp(`(?<![\\w])${escaped(name)}(?![\\w])`, "g"), "…");
  return text.replace(/[^\s"'`()[\]{}<>,;=]+/g, (word, at: number) => (differs(word, text.slice(0, at)) ? "…" : word));
}

const escaped = (text: string): string => text.replaceAll(/[\\^$.*+?()[\]{}|/-]/g, String.raw`\$&`);

/** Is this word an id, a number, a time or an e-mail address, which would differ in another event's message? */
function differs(word: string, before: string): boolean {
  if (word.includes("@")) return true;
  if (!/\d/.test(word) || /^(?:UTF-?(?:8|16)|SHA-?\d+|base64)\b/i.test(word)) return false;
  if (/^(?:localhost|[\w-]+(?:\.[\w-]+)+):\d+[.:!?]*$/i.test(word)) return false;
  if (/^[#-]?\d[\d.:]*$/.test(word)) return !/\b(?:HTTP|status|code|errno)[ :=]*$/i.test(before);
  return word.replaceAll(/\D/g, "").length >= 4 || /[-_#/:.]\d+[.:!?]*$/.test(word);
}
