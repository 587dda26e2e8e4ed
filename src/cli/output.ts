import { visible } from "../core/text.ts";

/** Where output goes; a closed pipe is not an error. */
export interface OutputStream {
  write(text: string): void;
  readonly colour: boolean;
}

export interface Output {
  readonly json: boolean;
  /** A command's answer: JSON for programs, lines for people. */
  answer(value: unknown, lines: () => readonly string[]): void;
  /** One line now, for commands that keep running. */
  line(text: string): void;
  bold(text: string): string;
}

export function createOutput(stdout: OutputStream, json: boolean): Output {
  return {
    json,
    answer(value, lines) {
      print(stdout, json ? indented(plain(value)).split("\n") : lines());
    },
    line: (text) => print(stdout, [text]),
    bold: (text) => (stdout.colour && !json ? `${bold}${text}${plainAgain}` : text),
  };
}

/** Puts a list of numbers, such as lanes, on one line. JSON escapes line breaks within texts, so no text looks like such a list. */
const indented = (value: unknown): string =>
  JSON.stringify(value, null, 2).replace(/\[\n\s+(\d+(?:,\n\s+\d+)*)\n\s+\]/g, (_, list: string) => `[${list.replace(/,\n\s+/g, ", ")}]`);

const [bold, plainAgain] = ["\u001b[1m", "\u001b[22m"];
const styles = new RegExp(`(${[bold, plainAgain].map((style) => style.replace("[", "\\[")).join("|")})`);

/**
 * All output of the program passes here, except for the picture that `dev` draws. Stored text must not move the cursor, fake a line or
 * reverse the reading order, even if a command does not escape it. Such a character is written as JSON escapes it.
 */
export function print(to: OutputStream, lines: readonly string[]): void {
  const shown = to.colour ? lines.map((line) => line.split(styles).map(piece).join("")) : lines.map(visible);
  to.write(`${shown.join("\n")}\n`);
}

const piece = (text: string): string => (text === bold || text === plainAgain ? text : visible(text));

/** Converts values that JSON cannot hold: a BigInt becomes a string, and bytes become base64 under a name that says so. */
export function plain(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return { base64: Buffer.from(value).toString("base64") };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

export type Cell = string | number | bigint | Date | null;

function cell(value: Cell): string {
  if (value === null) return "-";
  return value instanceof Date ? value.toISOString() : visible(String(value));
}

/** Columns by their titles. Numbers are aligned to the right. */
export function table(out: Output, titles: readonly string[], rows: readonly (readonly Cell[])[]): string[] {
  const cells = rows.map((row) => row.map(cell));
  const widths = titles.map((title, i) => Math.max(title.length, ...cells.map((row) => row[i]?.length ?? 0)));
  const right = titles.map((_, i) => rows.length > 0 && rows.every((row) => typeof row[i] === "number" || typeof row[i] === "bigint"));
  const line = (row: readonly string[]): string =>
    row
      .map((text, i) => (right[i] === true ? text.padStart(widths[i]!) : text.padEnd(widths[i]!)))
      .join("  ")
      .trimEnd();
  return [out.bold(line(titles)), ...cells.map(line)];
}

/** One name and value a line. */
export function fields(out: Output, entries: readonly (readonly [string, Cell])[]): string[] {
  const shown = entries.map(([name, value]) => [visible(name), cell(value)] as const);
  const width = Math.max(...shown.map(([name]) => name.length));
  return shown.map(([name, value]) => `${out.bold(name.padEnd(width))}  ${value}`);
}

/** With an empty line between them. */
export const paragraphs = (all: readonly (readonly string[])[]): string[] => all.flatMap((lines, i) => (i === 0 ? lines : ["", ...lines]));
