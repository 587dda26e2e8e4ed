import { existsSync } from "node:fs";
import { resolve } from "node:path";
import { parseArgs } from "node:util";

/** What the command line asks for. */
export interface Asked {
  /** Names of scenarios; empty for the default set. */
  readonly scenarios: readonly string[];
  readonly quick: boolean;
  readonly long: boolean;
  readonly rounds: number | null;
  readonly only: readonly string[];
  readonly beside: string | null;
  readonly json: string | null;
  readonly html: string | null;
}

const options = {
  quick: { type: "boolean" },
  long: { type: "boolean" },
  rounds: { type: "string" },
  only: { type: "string" },
  beside: { type: "string" },
  json: { type: "string" },
  html: { type: "string" },
} as const;

/** Throws on an unknown word: a run takes minutes, and a mistyped one would measure something else. */
export function asked(words: readonly string[], known: readonly string[]): Asked {
  const { values, positionals } = parsed([...words]);
  const unknown = positionals.find((name) => !known.includes(name));
  if (unknown !== undefined) throw new Error(`there is no bench ${JSON.stringify(unknown)}: there are ${known.join(", ")}`);
  const { rounds, beside } = values;
  if (rounds !== undefined && !/^[1-9]\d{0,3}$/.test(rounds))
    throw new Error(`--rounds takes a number from 1 to 9999, not ${JSON.stringify(rounds)}`);
  if (beside !== undefined && !existsSync(resolve(beside, "dist")))
    throw new Error(`--beside takes the folder of a checkout that is built: there is no ${resolve(beside, "dist")}`);
  return {
    scenarios: positionals,
    quick: values.quick ?? false,
    long: values.long ?? false,
    rounds: rounds === undefined ? null : Number(rounds),
    only: values.only?.split(",") ?? [],
    beside: beside === undefined ? null : resolve(beside),
    json: values.json ?? null,
    html: values.html ?? null,
  };
}

function parsed(args: string[]) {
  try {
    return parseArgs({ args, options, allowPositionals: true });
  } catch (error) {
    const [said] = (error as Error).message.split(/[.\n]/, 1);
    throw new Error(
      `${said}: the flags are ${Object.keys(options)
        .map((name) => `--${name}`)
        .join(", ")}`,
      { cause: error },
    );
  }
}
