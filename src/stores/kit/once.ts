import type { Applied, Inbox, OnceWork } from "../../contracts/inbox.ts";
import { WaybillError } from "../../core/errors.ts";

/** Distinct events of one consumer. */
export interface Events {
  readonly consumer: string;
  readonly ids: readonly string[];
}

/** Writes the marks and runs the work of all events in one transaction. With a letter, there is one event. */
export type Apply<Tx> = (events: Events, handlerVersion: number, work: OnceWork<Tx>, letter?: bigint) => Promise<readonly Applied[]>;

export function onceBy<Tx>(apply: Apply<Tx>): Inbox<Tx>["once"] {
  return async ({ consumer, id, also = [] }, handlerVersion, work, letter) => {
    const [applied] = await apply({ consumer, ids: [id, ...also] }, handlerVersion, work, letter);
    return applied!;
  };
}

/** A library said that it had committed, and no finished marks are there. */
export const rolledBack = (ids: readonly string[]): WaybillError =>
  new WaybillError(
    "TRANSACTION_LOST",
    `the database rolled the transaction of event ${ids.join(", ")} back before its COMMIT: a statement that the handler did not await had failed`,
  );
