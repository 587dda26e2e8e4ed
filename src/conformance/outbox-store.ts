import type { StoreSuite } from "./harness.ts";
import { addingCases } from "./outbox-adding.ts";
import { byteCases } from "./outbox-bytes.ts";
import { claimingCases } from "./outbox-claiming.ts";
import { destinationCases } from "./outbox-destinations.ts";
import { holdCases } from "./outbox-holds.ts";
import { hostileCases } from "./outbox-hostile.ts";
import { settlingCases } from "./outbox-settling.ts";
import { suspectCases } from "./outbox-suspects.ts";

/** OutboxWriter, Transactor and OutboxStore: no loss, no phantom, order, few duplicates, isolation. */
export function outboxStoreSuite<Db, Tx>(suite: StoreSuite<Db, Tx>): void {
  addingCases(suite);
  claimingCases(suite);
  settlingCases(suite);
  holdCases(suite);
  destinationCases(suite);
  suspectCases(suite);
  byteCases(suite);
  hostileCases(suite);
}
