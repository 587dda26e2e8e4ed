import type { State } from "../../core/event.ts";
import type { Written } from "./history.ts";

/** A message as a raw client finds it in the broker. */
export type Copy = Pick<Written, "topic" | "id" | "aggregate" | "n" | "sha">;

export interface Effect extends Omit<Copy, "sha"> {
  readonly consumer: string;
}

/** Something that must stay within a bound: memory, sockets, events in flight, timers. */
export interface Sample {
  readonly what: string;
  readonly value: number;
  readonly bound: number;
}

export interface LeftLetter {
  readonly consumer: string;
  readonly id: string;
  /** The inbox keeps it, and a mark beside it: no copy of the event is applied, unless an operator redrives the letter. A topic has no marks. */
  readonly marked?: boolean;
  /** An operator has redriven it, and its consumer has not applied it, nor given it up again. */
  readonly waits?: boolean;
}

/** Everything that is read after the run, by other clients than its workers. Null: it could not be read. */
export interface Reads {
  /** The workload's own table: which events the database has committed and still knows. */
  readonly written: readonly Pick<Written, "id" | "aggregate" | "n">[] | null;
  /** Each topic in the order in which the broker stored it. */
  readonly broker: readonly Copy[] | null;
  /** Who reads which topics. */
  readonly consumers: readonly { readonly consumer: string; readonly topics: readonly string[] }[];
  /** In the order in which they were committed. */
  readonly effects: readonly Effect[] | null;
  /** What consumers gave up on. */
  readonly letters: readonly LeftLetter[] | null;
  /** The rows that are left. */
  readonly outbox: readonly { readonly id: string; readonly aggregate: string; readonly state: State }[] | null;
  /** As the status command reports it, and as SQL counts it. */
  readonly status: { readonly said: Readonly<Record<string, number>>; readonly truth: Readonly<Record<string, number>> } | null;
  readonly samples: readonly Sample[] | null;
  /** Logs, errors, metrics and answers of the run. */
  readonly outputs: readonly { readonly where: string; readonly text: string }[] | null;
  /** Secrets that were given to the run, and must not be in its outputs. */
  readonly canaries: readonly string[];
  /** Secrets that are also words of our own output. They are looked for where only a secret stands. */
  readonly commonCanaries?: readonly string[];
}
