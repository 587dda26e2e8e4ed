import { parseArgs, type ParseArgsConfig } from "node:util";

type Options = NonNullable<ParseArgsConfig["options"]>;
type Values<O extends Options> = ReturnType<typeof parseArgs<{ options: O }>>["values"];

/** Says what is wrong with what was asked for, and how to ask. */
export function misused(usage: string, why: string): never {
  process.stderr.write(`${why}\nusage: ${usage}\n`);
  process.exit(2);
}

/** The options of a script of this repository: `--help` tells its usage, and whatever it does not know ends it with 2. */
export function readArguments<const O extends Options>(usage: string, options: O): Values<O> {
  const { values, why } = parsed(options);
  if (why !== null) misused(usage, why);
  if ((values as { readonly help?: boolean }).help === true) {
    process.stdout.write(`usage: ${usage}\n`);
    process.exit(0);
  }
  return values;
}

function parsed<const O extends Options>(
  options: O,
): { readonly values: Values<O>; readonly why: null } | { readonly values: null; readonly why: string } {
  try {
    const all = { ...options, help: { type: "boolean" } } as unknown as O;
    return { values: parseArgs({ args: process.argv.slice(2), options: all }).values, why: null };
  } catch (error) {
    // The rest of what Node says is about other ways to write it.
    return { values: null, why: (error as Error).message.split(/\. /)[0]! };
  }
}

/** A whole number of at least `least`, given as text. */
export function wholeNumber(usage: string, name: string, text: string, least = 0): number {
  const value = Number(text);
  if (text.trim() !== "" && Number.isSafeInteger(value) && value >= least) return value;
  return misused(usage, `--${name} must be a whole number of ${least} or more, not ${JSON.stringify(text)}`);
}

/** Names among those that are known, given with commas between them; null when none are given. */
export function someOf(usage: string, name: string, text: string | undefined, known: readonly string[]): readonly string[] | null {
  if (text === undefined) return null;
  const given = text.split(",").map((each) => each.trim());
  for (const each of given) if (!known.includes(each)) misused(usage, `--${name} ${JSON.stringify(each)} is none of ${known.join(", ")}`);
  return given;
}
