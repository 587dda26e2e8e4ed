import { count } from "../core/text.ts";
import { subscriberNames } from "./shop.ts";
import type { Summary } from "./summary.ts";

/** The promises by their names, each kept or not. */
interface Verdict {
  readonly promises: Readonly<Record<"noLoss" | "noPhantom" | "order" | "oneEffect" | "fewDuplicates", boolean>>;
  /** True when every promise was kept. The naive shop promises nothing: true when nothing was lost. */
  readonly held: boolean;
  /** What was not kept, in words; empty when everything was. */
  readonly broken: readonly string[];
}

export function judge(summary: Summary, naive: boolean): Verdict {
  const { lost, undelivered, invented, outOfOrder, doubled, duplicatesInLog, duplicatesAllowed } = summary;
  const promises = {
    noLoss: lost === 0 && undelivered === 0,
    noPhantom: invented === 0,
    order: outOfOrder === 0,
    oneEffect: doubled === 0,
    fewDuplicates: duplicatesInLog <= duplicatesAllowed,
  };
  const broken = [
    ...told(lost, "was lost", "were lost"),
    ...told(undelivered, "was not delivered in time", "were not delivered in time"),
    ...told(invented, "was invented", "were invented"),
    ...told(outOfOrder, "came out of order", "came out of order"),
    ...(doubled === 0 ? [] : [`${count(doubled, "effect")} happened twice`]),
    ...(promises.fewDuplicates ? [] : [`the log has ${count(duplicatesInLog, "duplicate")}, and the faults explain ${duplicatesAllowed}`]),
  ];
  return { promises, held: naive ? lost === 0 : broken.length === 0, broken };
}

const told = (n: number, one: string, many: string): string[] => (n === 0 ? [] : [`${count(n, "event")} ${n === 1 ? one : many}`]);

/** For a person, after the run. */
export function inWords(summary: Summary, { held, broken }: Verdict, naive: boolean): readonly string[] {
  const { ordersCommitted, rolledBack, events, published, effects, duplicateDeliveries, duplicatesInLog, dead, blocked, faults } = summary;
  const applied = subscriberNames.map((name) => `${name} ${effects[name]}`).join(", ");
  const met = Object.entries(faults).map(([kind, n]) => (n === 1 ? kind : `${kind} ${n} times`));
  return [
    `${count(ordersCommitted, "order")} committed, ${rolledBack} transactions rolled back, ${count(events, "event")}, ${published} of them in the broker's log`,
    `effects: ${applied}; ${count(duplicateDeliveries, "duplicate delivery", "duplicate deliveries")}, ${count(duplicatesInLog, "duplicate")} in the log`,
    ...(dead > 0 ? [`${count(dead, "event")} dead and ${blocked} blocked behind it: waiting for an operator (waybill dead list)`] : []),
    ...(met.length > 0 ? [`faults: ${met.join(", ")}`] : []),
    ...(naive ? naiveWords(held, broken) : [held ? "Every promise held." : `NOT KEPT: ${broken.join("; ")}.`]),
  ];
}

function naiveWords(held: boolean, broken: readonly string[]): readonly string[] {
  if (broken.length === 0) return ["Dual writes, and nothing went wrong this time: try --naive --faults."];
  return [
    `Dual writes: ${broken.join("; ")}.`,
    ...(held ? [] : ["Nobody will ever deliver what was lost: no table remembers it. The same shop without --naive loses nothing."]),
  ];
}
