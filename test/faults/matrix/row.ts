import type { RunOptions, RunResult, RunScene } from "../../../src/proof/run/run.ts";
import type { RunPlace } from "../../../src/proof/run/task.ts";
import type { Pair } from "./pairs.ts";
import type { Reached, ReachedBroker } from "./servers.ts";

/** A run of the matrix, as a row breaks it. */
export interface Stage extends RunScene {
  readonly pair: Pair;
  readonly store: Reached;
  readonly broker: ReachedBroker;
  /** How long the load goes on. */
  readonly forMs: number;
  readonly leaseMs: number;
  /** Where histories and logs go, and what workers run. */
  readonly folder: string;
  readonly program: string;
  /** One more was injected, of this kind where a row has several. */
  once(kind?: string): void;
  /** Something to tell with the result. */
  note(text: string): void;
  /** From here on the judge reads there. */
  move(direct: Partial<RunPlace>): void;
  /** True for as long as the load goes on. */
  on(): boolean;
  pause(ms: number): Promise<void>;
  /** To the end of the load. */
  rest(): Promise<void>;
}

/** What a run has of its own where it differs from the others. */
export interface Change extends Partial<
  Pick<RunOptions, "crew" | "load" | "limits" | "restMs" | "forgets" | "drops" | "subscriber" | "echoes">
> {
  readonly bounds?: Partial<RunOptions["bounds"]>;
  readonly relay?: Partial<RunOptions["relay"]>;
  readonly forMs?: number;
  /** Where it takes place, when not on the servers that all share. */
  readonly store?: Reached;
  readonly broker?: ReachedBroker;
  /** URLs of the workers and of the judge, such as those of a user of their own. */
  readonly place?: Partial<RunPlace>;
  readonly direct?: Partial<RunPlace>;
  readonly canaries?: readonly string[];
  readonly dispose?: (() => Promise<void>) | undefined;
}

export interface Row {
  /** As faults are numbered in the matrix; 0 is a mix of them. */
  readonly number: number;
  readonly title: string;
  readonly injected: string;
  readonly pairs: readonly Pair[];
  /** A run that has not injected each of them at least once does not hold. */
  readonly kinds?: readonly string[] | ((pair: Pair) => readonly string[]);
  /** Where it cannot be injected, and why. */
  readonly cannot?: Readonly<Record<string, string>>;
  /** Makes what the run needs. */
  prepare?(given: {
    readonly pair: Pair;
    readonly store: Reached;
    readonly broker: ReachedBroker;
    readonly run: string;
  }): Promise<Change> | Change;
  /** Once tables and topics are there, before anybody works. */
  before?(stage: Stage): Promise<void>;
  inject(stage: Stage): Promise<void>;
  /** After the run: null when it shows what the fault must have led to, or a sentence that says what is not there. */
  felt?(result: RunResult): string | null;
}
