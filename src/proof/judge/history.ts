import type { Outcome } from "../../contracts/outbox-store.ts";
import { WaybillError } from "../../core/errors.ts";

/**
 * `invoked` before an attempt; then exactly one of the others, or none when the process died. `unknown`: it may or may not have been done.
 * A delivery is not an attempt of a process: it is `ok` when it comes.
 */
export type Phase = "invoked" | "ok" | "failed" | "unknown";

/** An event as its writer made it. `n` is what its aggregate's counter became in the same transaction: 1, 2, 3 … */
export interface Written {
  readonly id: string;
  readonly aggregate: string;
  readonly topic: string;
  readonly n: number;
  /** Hash of the payload's bytes, the headers and everything else that must arrive unchanged. */
  readonly sha: string;
  /** Its savepoint was rolled back. */
  readonly undone?: boolean;
  /** It becomes available later, and joins its aggregate's order then. */
  readonly delayed?: boolean;
}

/** An event in a relay's hand, with the lane and epoch it was claimed under. */
export interface HandedEvent {
  readonly id: string;
  readonly lane: number;
  readonly epoch: number;
}

export interface Settled extends HandedEvent {
  readonly as: Outcome["as"];
  /** For a parked event: its followers go on. */
  readonly release?: boolean;
}

/** What a fault may harm: everything, or only these topics or aggregates. */
export type Scope = "all" | { readonly topics: readonly string[] } | { readonly aggregates: readonly string[] };

/** What a process did, apart from when and who. */
export type Act =
  | { readonly op: "add"; readonly tx: string; readonly events?: readonly Written[] }
  /** Its claims are not known yet when it is invoked. */
  | { readonly op: "claim"; readonly claims: readonly HandedEvent[] }
  /**
   * `mono` is the relay's last reading of its own monotonic clock before the send, and `began` is when it read it. A relay that is frozen
   * between the reading and the send cannot know.
   */
  | { readonly op: "publish"; readonly events: readonly HandedEvent[]; readonly mono: number; readonly began: number }
  /** `began` is when it was invoked, and `settled` how many rows the store says it changed. */
  | { readonly op: "settle"; readonly outcomes: readonly Settled[]; readonly began: number; readonly settled?: number }
  | { readonly op: "deliver"; readonly consumer: string; readonly topic: string; readonly id: string; readonly sha: string }
  /** `failed`: its handler's work was undone, or another copy had been applied before. */
  | { readonly op: "effect"; readonly consumer: string; readonly id: string }
  | { readonly op: "ack"; readonly consumer: string; readonly id: string }
  /** `mono` is the relay's own monotonic clock when it asked. */
  | { readonly op: "lease"; readonly what: "renew"; readonly mono: number; readonly ttlMs: number }
  /** `began` is when it was invoked. A process that was frozen since may record its take after later ones. */
  | {
      readonly op: "lease";
      readonly what: "take";
      readonly began: number;
      readonly lanes: readonly (readonly [lane: number, epoch: number])[];
    }
  /** What an operator did, to these events in the outbox, or to the letters that a consumer has of them. */
  | { readonly op: "operate"; readonly action: "redrive" | "discard"; readonly ids: readonly string[]; readonly consumer?: string }
  /** `copies`: how many copies of events it may cause in the broker. Null: unknown. It begins with `invoked` and ends with `ok`. */
  | { readonly op: "fault"; readonly fault: string; readonly target: string; readonly copies: number | null; readonly scope: Scope };

export type Entry = {
  /** Milliseconds, on a clock that all processes of the run share. */
  readonly at: number;
  readonly process: string;
  readonly phase: Phase;
} & Act;

/** Writes one process's part of the history. An entry is a line of JSON. */
export interface Recorder {
  write(phase: Phase, act: Act): void;
}

export function createRecorder(process: string, now: () => number, append: (line: string) => void): Recorder {
  return {
    write: (phase, act) => append(`${JSON.stringify({ at: now(), process, phase, ...act } satisfies Entry)}\n`),
  };
}

/** The histories of all processes as one, by time. A last line that is cut short belongs to a process that was killed, and is left out. */
export function readHistory(files: readonly { readonly name: string; readonly text: string }[]): readonly Entry[] {
  const entries = files.flatMap(({ name, text }) => {
    const lines = text.split("\n");
    const cut = lines.pop();
    return [...lines.entries()].map(([index, line]) => parse(name, index, line)).concat(whole(cut));
  });
  return entries.sort((a, b) => a.at - b.at);
}

function parse(name: string, index: number, line: string): Entry {
  try {
    return JSON.parse(line) as Entry;
  } catch (cause) {
    throw new WaybillError("INVALID_OPTION", `line ${index + 1} of the history ${name} is no JSON: it was damaged, or is no history`, {
      cause,
    });
  }
}

function whole(cut: string | undefined): readonly Entry[] {
  if (cut === undefined || cut === "") return [];
  try {
    return [JSON.parse(cut) as Entry];
  } catch {
    return [];
  }
}
