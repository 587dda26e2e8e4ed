import type { SqlWriter } from "../../src/contracts/handle.ts";
import type { Store } from "../../src/contracts/store.ts";
import { createWake } from "../../src/core/wake.ts";
import { createOutbox, type Outbox } from "../../src/outbox/outbox.ts";
import type { RelayOptions } from "../../src/relay/create-relay.ts";
import type { AnyHandle } from "../handles/body.ts";

/** How the tables keep events, and how relays hear of new ones. */
export interface Keeping {
  readonly onPublish?: "keep" | "delete";
  readonly partitions?: "day";
  readonly listen?: true;
}

/** A database with Waybill's tables and a table `effects`, where a subscriber applies events by one way of reaching it. */
export interface Ground {
  readonly store: Pick<Store<unknown, unknown>, "inbox" | "letters" | "operator">;
  /** What a relay reads. */
  readonly relayed: RelayOptions["store"];
  /** For handlers: adds in their transactions. */
  readonly outbox: Outbox<unknown, unknown>;
  /** How often the relay was woken. */
  readonly hints: () => number;
  /** A transaction of a service that adds events, by the ground's way. */
  transaction(work: (tx: unknown, outbox: Outbox<unknown, unknown>) => Promise<void>): Promise<void>;
  /** A statement of the handler's, in its transaction. */
  run(tx: unknown, sql: string): PromiseLike<unknown>;
  /** A statement by another way, which answers rows as lists of text. */
  read(sql: string): Promise<readonly (readonly string[])[]>;
  /** Each client of a pool that the test gave, and how many listeners it has. */
  readonly listeners?: () => readonly number[];
  /** How many connections to this database the server has, apart from the ground's own. */
  readonly connections?: () => Promise<number>;
  /** Ends the store and the library, and lets the test look once more. */
  end(): Promise<void>;
  close(): Promise<void>;
}

export type OutboxStore = Pick<Store<unknown, unknown>, "wake" | "transactor"> & { readonly writer: SqlWriter };

/** An outbox on the store that counts how often it wakes the relay, and wakes it. */
export function counted(store: unknown, handle?: AnyHandle): Pick<Ground, "outbox" | "hints"> {
  const { wake = createWake() } = store as Partial<OutboxStore>;
  let hints = 0;
  const counting: typeof wake = {
    ...wake,
    notify: (...given) => {
      hints += 1;
      wake.notify(...given);
    },
  };
  const own = { ...(store as OutboxStore), wake: counting };
  const outbox = handle === undefined ? createOutbox({ store: own as never }) : createOutbox({ store: own, tx: handle });
  return { outbox, hints: () => hints };
}

export const texts = (rows: readonly Readonly<Record<string, unknown>>[]): readonly (readonly string[])[] =>
  rows.map((row) => Object.values(row).map(String));
