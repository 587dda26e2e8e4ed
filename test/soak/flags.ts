import { brokers, plainNames, stores, type Choice, type Cut, type Plain } from "./plan.ts";
import { misused, readArguments, someOf, wholeNumber } from "../support/arguments.ts";
import type { BrokerName, StoreName } from "../faults/matrix/pairs.ts";

const usage =
  "npm run test:soak -- [--minutes N] [--seed S] [--leg K] [--store NAME,…] [--broker NAME,…] [--faults N,…|none] [--plain OPTION,…] [--seconds N] [--plan] | --help";

export interface Wanted {
  readonly minutes: number;
  readonly seed: number;
  /** The only leg that is played. Null: one after the other. */
  readonly leg: number | null;
  readonly choice: Choice;
  /** The flags that narrow the choice, to be repeated with a seed. */
  readonly narrowing: readonly string[];
  readonly cut: Cut;
  readonly plan: boolean;
}

/** What was asked for. Whoever asks wrongly gets a sentence, and exit code 2. */
export function readFlags(): Wanted {
  const values = readArguments(usage, {
    minutes: { type: "string" },
    seed: { type: "string" },
    leg: { type: "string" },
    store: { type: "string" },
    broker: { type: "string" },
    faults: { type: "string" },
    plain: { type: "string" },
    seconds: { type: "string" },
    plan: { type: "boolean", default: false },
  });
  const number = (name: "minutes" | "seed" | "leg" | "seconds", least: number): number | null =>
    values[name] === undefined ? null : wholeNumber(usage, name, values[name], least);
  const leg = number("leg", 0);
  const seconds = number("seconds", 5);
  const plain = (someOf(usage, "plain", values.plain, plainNames) ?? []) as readonly Plain[];
  const faults =
    values.faults === undefined
      ? null
      : values.faults === "none"
        ? []
        : values.faults.split(",").map((at) => wholeNumber(usage, "faults", at));
  const replays = [values.faults, values.plain].some((value) => value !== undefined);
  if (replays && leg === null) misused(usage, "--faults and --plain change one leg: name it with --leg");
  if (leg !== null && values.seed === undefined) misused(usage, "--leg is a leg of a seed: name it with --seed");
  const seed = number("seed", 0);
  if (seed !== null && seed >= 2 ** 31) misused(usage, `--seed must be less than ${2 ** 31}, not ${seed}`);
  return {
    minutes: number("minutes", 1) ?? 10,
    seed: seed ?? Math.floor(Math.random() * 2 ** 31),
    leg,
    choice: {
      stores: (someOf(usage, "store", values.store, stores) ?? stores) as readonly StoreName[],
      brokers: (someOf(usage, "broker", values.broker, brokers) ?? brokers) as readonly BrokerName[],
    },
    narrowing: [
      ...(values.store === undefined ? [] : [`--store ${values.store}`]),
      ...(values.broker === undefined ? [] : [`--broker ${values.broker}`]),
    ],
    cut: { faults, plain, seconds },
    plan: values.plan,
  };
}
