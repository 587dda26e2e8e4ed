import type { Examination } from "./doctor.ts";
import type { Sink } from "./sink.ts";
import type { Store } from "./store.ts";

/** Any `Store`, whatever its transactions are. */
export interface ConfiguredStore extends Omit<Store<never, never>, "writer" | "transactor" | "inbox"> {
  readonly writer: object;
  readonly transactor: object;
  readonly inbox: object;
}

/** A broker as commands use it. A sink is enough for a relay. */
export interface ConfiguredBroker extends Sink, Partial<Examination> {
  /** Creates missing topics, and each consumer's place in them: for `waybill migrate`. */
  provision?(topics: readonly string[], consumers: readonly string[]): Promise<void>;
}
