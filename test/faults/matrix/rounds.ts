import type { Scope } from "../../../src/proof/judge/history.ts";
import type { Stage } from "./row.ts";

/** What every relay together may have in flight. */
export const copiesOf = (stage: Stage): number => stage.window * stage.names("relay").length;

/** Whoever stands still may have SQLite's only lock, and keep every relay from its lease. */
export const freezeCopies = (stage: Stage): number => (stage.pair.store === "sqlite" ? copiesOf(stage) : stage.window);

/**
 * A fault of a server or of the way to it, time after time: `work` causes it and makes it whole. It harms what is in its scope. Of several
 * kinds it is each in turn. A round whose work says false has met nobody, and does not count.
 */
export async function rounds(
  stage: Stage,
  of: "store" | "broker",
  fault: string | readonly string[],
  work: (round: number, kind: string) => Promise<boolean | void>,
  { calmMs = 900, scope = "all" }: { readonly calmMs?: number; readonly scope?: Scope } = {},
): Promise<void> {
  for (let round = 0; stage.on(); round++) {
    await stage.pause(calmMs);
    const kind = typeof fault === "string" ? fault : fault[round % fault.length]!;
    const begun = stage.fault({ fault: kind, target: stage.pair[of], copies: copiesOf(stage), scope });
    const well = await work(round, kind);
    begun.ended();
    if (well !== false) stage.once(typeof fault === "string" ? undefined : kind);
  }
}
