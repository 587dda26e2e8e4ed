import type { Assignment } from "../../../contracts/source.ts";
import { shared } from "../../../core/time.ts";
import { createAckLedger } from "../../kit/ack-ledger.ts";
import type { Committed } from "./commits.ts";
import type { Reading } from "./fetching.ts";
import type { Spot } from "./spots.ts";

/** A partition of ours. Once another may have it, it is lost for good: should it come back, it begins anew. */
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
      // A delivery that is left is never acknowledged: it must not keep others out, nor the next handover waiting.
      for (const release of [...open]) release();
    },
  };
}
