/** Where output goes; a closed pipe is not an error. */
export interface Stream {
  write(text: string): void;
  readonly colour: boolean;
}

export interface Output {
  readonly json: boolean;
  /** A command's answer: JSON for programs, text for people. */
  answer(value: unknown, text: () => string): void;
  /** One line now, for commands that go on. */
  line(text: string): void;
  bold(text: string): string;
}

export function createOutput(stdout: Stream, json: boolean): Output {
  return {
    json,
    answer(value, text) {
      stdout.write(`${json ? JSON.stringify(plain(value), null, 2) : text()}\n`);
    },
    line: (text) => stdout.write(`${text}\n`),
    bold: (text) => (stdout.colour && !json ? `\u001b[1m${text}\u001b[22m` : text),
  };
}

/** What JSON cannot hold: a BigInt becomes a string, bytes become base64 under a name that says so. */
export function plain(value: unknown): unknown {
  if (typeof value === "bigint") return value.toString();
  if (value instanceof Date) return value.toISOString();
  if (value instanceof Uint8Array) return { base64: Buffer.from(value).toString("base64") };
  if (Array.isArray(value)) return value.map(plain);
  if (typeof value !== "object" || value === null) return value;
  return Object.fromEntries(Object.entries(value).map(([key, item]) => [key, plain(item)]));
}

/** Stored text may hold escape sequences; on a terminal they must not move the cursor or fake a line. */
export function visible(text: string): string {
  return text.replace(/[\u0000-\u001f\u007f-\u009f\u2028\u2029\u202a-\u202e\u2066-\u2069]/g, (c) => {
    const known: Record<string, string> = { "\n": "\\n", "\r": "\\r", "\t": "\\t" };
    return known[c] ?? `\\u${c.charCodeAt(0).toString(16).padStart(4, "0")}`;
  });
}

export type Cell = string | number | bigint | Date | null;

export function cell(value: Cell): string {
  if (value === null) return "-";
  return value instanceof Date ? value.toISOString() : visible(String(value));
}

/** Columns by their titles; numbers stand to the right. */
export function table(out: Output, titles: readonly string[], rows: readonly (readonly Cell[])[]): string {
  const cells = rows.map((row) => row.map(cell));
  const widths = titles.map((title, i) => Math.max(title.length, ...cells.map((row) => row[i]?.length ?? 0)));
  const right = titles.map((_, i) => rows.length > 0 && rows.every((row) => typeof row[i] === "number" || typeof row[i] === "bigint"));
  const line = (row: readonly string[]): string =>
    row
      .map((text, i) => (right[i] === true ? text.padStart(widths[i]!) : text.padEnd(widths[i]!)))
      .join("  ")
      .trimEnd();
  return [out.bold(line(titles)), ...cells.map(line)].join("\n");
}

/** One name and value a line. */
export function fields(out: Output, entries: readonly (readonly [string, Cell])[]): string {
  const width = Math.max(...entries.map(([name]) => name.length));
  return entries.map(([name, value]) => `${out.bold(name.padEnd(width))}  ${cell(value)}`).join("\n");
}

export const shorten = (text: string, most: number): string => (text.length > most ? `${text.slice(0, most - 1)}…` : text);

/** "1 event", "2 events". */
export const count = (n: number, one: string, many = `${one}s`): string => `${n} ${n === 1 ? one : many}`;
