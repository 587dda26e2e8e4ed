import { parseArgs } from "node:util";
import { suggestion } from "../core/options.ts";
import { asIs, type Read, type Refuse } from "./read.ts";
import type { Terminal } from "./terminal.ts";
import { usage } from "./usage.ts";

export interface Flag<T = unknown> {
  readonly form: "switch" | "value" | "repeated";
  /** Stands for the value in the help, such as URL. */
  readonly shown: string;
  readonly help: string;
  readonly read: (texts: readonly string[], refuse: Refuse) => T;
}
export type Flags = Readonly<Record<string, Flag>>;
export type Values<F extends Flags> = { readonly [K in keyof F]: F[K] extends Flag<infer T> ? T : never };

export interface Command<F extends Flags = Flags> {
  /** One or two words. */
  readonly name: string;
  readonly summary: string;
  /** Words after the command's name, such as ids. */
  readonly words?: { readonly shown: string; readonly least: number; readonly most: number };
  readonly flags: F;
  readonly examples: readonly string[];
  run(terminal: Terminal, values: Values<F>, words: readonly string[]): Promise<void>;
}

export const command = <F extends Flags>(definition: Command<F>): Command<F> => definition;

function valueFlag<T>(shown: string, help: string, read: Read<T>): Flag<T | undefined> {
  return { form: "value", shown, help, read: ([text], refuse) => (text === undefined ? undefined : read(text, refuse)) };
}

export const flag = {
  switch: (help: string): Flag<boolean> => ({ form: "switch", shown: "", help, read: (texts) => texts.length > 0 }),
  value: valueFlag,
  text: (shown: string, help: string): Flag<string | undefined> => valueFlag(shown, help, asIs),
  repeated: (shown: string, help: string): Flag<readonly string[]> => ({ form: "repeated", shown, help, read: (texts) => texts }),
};

/** What every command takes. */
export const commonFlags = {
  config: flag.text("PATH", "configuration file (default: waybill.config.mjs, .json or .ts in this folder)"),
  "no-config": flag.switch("use no configuration file: one that lies in this folder is code, and would be run"),
  json: flag.switch("machine-readable output; errors too"),
  help: flag.switch("show this help"),
};

interface Parsed<F extends Flags> {
  readonly values: Values<F & typeof commonFlags>;
  readonly words: readonly string[];
}

/** Parses everything after the command's name. An unknown flag is refused, never guessed. */
export function parse<F extends Flags>({ name, flags, words: wanted }: Command<F>, argv: readonly string[]): Parsed<F> {
  const table: Flags = { ...flags, ...commonFlags };
  const { tokens } = parseArgs({
    args: [...argv],
    strict: false,
    allowPositionals: true,
    tokens: true,
    options: {
      ...Object.fromEntries(
        Object.entries(table).map(([key, { form }]) => [key, { type: form === "switch" ? ("boolean" as const) : ("string" as const) }]),
      ),
      help: { type: "boolean", short: "h" },
    },
  });
  const given = new Map<string, string[]>();
  const words: string[] = [];
  for (const token of tokens) {
    if (token.kind === "positional") words.push(token.value);
    if (token.kind === "option") {
      const entry = Object.hasOwn(table, token.name) ? table[token.name] : undefined;
      if (entry === undefined) {
        const known = Object.keys(table).map((key) => `--${key}`);
        usage(`waybill ${name} has no flag ${token.rawName}${suggestion(token.rawName, known)}`);
      }
      const texts = given.get(token.name) ?? [];
      given.set(token.name, [...texts, textOf(token.rawName, entry, token.value, token.inlineValue === true)]);
      if (texts.length > 0 && entry.form === "value") usage(`${token.rawName} is given twice`);
    }
  }
  const values: Record<string, unknown> = {};
  for (const [key, entry] of Object.entries(table)) {
    values[key] = entry.read(given.get(key) ?? [], (why) => {
      usage(`--${key} ${why}`);
    });
  }
  if (values["help"] !== true) countWords(name, wanted ?? { shown: "", least: 0, most: 0 }, words);
  return { values: values as Parsed<F>["values"], words };
}

function textOf(rawName: string, { form, shown }: Flag, value: string | undefined, inline: boolean): string {
  if (form === "switch") {
    if (value !== undefined) usage(`${rawName} takes no value`);
    return "";
  }
  if (value === undefined) usage(`${rawName} needs a value: ${rawName} ${shown}`);
  // "--store --json" is far more often a forgotten value than a file called "--json". "-" alone means stdin.
  if (!inline && /^-./.test(value)) {
    usage(`${rawName} needs a value: ${rawName} ${shown}, or ${rawName}=… for one that begins with "-"`);
  }
  return value;
}

function countWords(name: string, { shown, least, most }: NonNullable<Command["words"]>, words: readonly string[]): void {
  if (words.length < least) usage(`waybill ${name} needs ${shown}`);
  const [extra] = words.slice(most);
  if (extra !== undefined) usage(`waybill ${name} does not know what to do with ${JSON.stringify(extra.slice(0, 80))}`);
}
