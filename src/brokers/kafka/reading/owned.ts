import type { Assignment } from "../../../contracts/source.ts";
import { shared } from "../../../core/time.ts";
import { createAckLedger } from "../../kit/ack-ledger.ts";
import type { Committed } from "./commits.ts";
import type { Reading } from "./fetching.ts";
import type { Spot } from "./spots.ts";

/** A partition of ours. Once another member may own it, this object is lost for good: if the partition comes back, it gets a new one. */
export interface Owned extends Reading, Committed {
  readonly assignment: Assignment;
  /** Releases each delivery that is not acknowledged. */
  readonly open: Set<() => void>;
  lose(): void;
}

export function createOwned({ topic, index }: Spot, committed: bigint | null, inTouch: () => boolean): Owned {
  const gone = shared(new AbortController());
  const open = new Set<() => void>();
  return {
    ...{ topic, index, from: committed ?? 0n, fresh: committed === null, queue: [], bytes: 0 },
    ...{ ledger: createAckLedger<bigint>(), ended: gone.signal, open },
    assignment: { ended: gone.signal, ours: () => !gone.signal.aborted && inTouch() },
    lose() {
      gone.abort();
      // The remaining deliveries are never acknowledged: they must not keep others out, nor delay the next handover.
      for (const release of [...open]) release();
    },
  };
}
