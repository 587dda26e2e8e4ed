import type { Outcome } from "../../contracts/outbox-store.ts";
import { WaybillError } from "../../core/errors.ts";

/**
 * `invoked` before it is tried; then exactly one of the others, or none when the process died. `unknown`: neither yes nor no. A delivery is
 * nobody's try: it is `ok` when it comes.
 */
export type Phase = "invoked" | "ok" | "failed" | "unknown";

/** An event as its writer made it. `n` is what its aggregate's counter became in the same transaction: 1, 2, 3 … */
export interface Written {
  readonly id: string;
  readonly aggregate: string;
  readonly topic: string;
  readonly n: number;
  /** Of the payload's bytes, the headers and whatever else must arrive as it is. */
  readonly sha: string;
  /** Its savepoint was rolled back. */
  readonly undone?: boolean;
  /** It has a moment of its own, and joins its aggregate's order then. */
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
  /** Of a parked one: its followers go on. */
  readonly release?: boolean;
}

/** What a fault may harm: everything, or only these topics or aggregates. */
export type Scope = "all" | { readonly topics: readonly string[] } | { readonly aggregates: readonly string[] };

/** What a process did, apart from when and who. */
export type Act =
  | { readonly op: "add"; readonly tx: string; readonly events?: readonly Written[] }
  /** Nothing is known of what it will be when it is invoked. */
  | { readonly op: "claim"; readonly claims: readonly HandedEvent[] }
  /**
   * `mono` is what the relay last read on its own monotonic clock before it sent, and `began` is when it read it: whoever is
   * frozen between its look and its act cannot know.
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
  /** `began` is when it was invoked: whoever was frozen since may tell of it after those who came later. */
  | {
      readonly op: "lease";
      readonly what: "take";
      readonly began: number;
      readonly lanes: readonly (readonly [lane: number, epoch: number])[];
    }
  /** What an operator did, to these events in the outbox, or to the letters that a consumer has of them. */
  | { readonly op: "operate"; readonly action: "redrive" | "discard"; readonly ids: readonly string[]; readonly consumer?: string }
  /** `copies`: how many copies of events it may cause in the broker; null when nobody can tell. It begins `invoked` and has ended with `ok`. */
  | { readonly op: "fault"; readonly fault: string; readonly target: string; readonly copies: number | null; readonly scope: Scope };

export type Entry = {
  /** Milliseconds, on a clock that all processes of the run share. */
  readonly at: number;
  readonly process: string;
  readonly phase: Phase;
} & Act;

/** One process's end of the history; an entry is a line of JSON. */
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
