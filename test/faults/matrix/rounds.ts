import type { Scope } from "../../../src/verify/history.ts";
import type { Stage } from "./row.ts";

/** What every relay together may have in flight. */
export const copiesOf = (stage: Stage): number => stage.window * stage.names("relay").length;

/** A fault of a server or of the way to it, time after time: `work` causes it and makes it whole. It harms what is in its scope. */
export async function rounds(
  stage: Stage,
  of: "store" | "broker",
  fault: string,
  work: (round: number) => Promise<void>,
  { calmMs = 900, scope = "all" }: { readonly calmMs?: number; readonly scope?: Scope } = {},
): Promise<void> {
  for (let round = 0; stage.on(); round++) {
    await stage.pause(calmMs);
    const begun = stage.fault({ fault, target: stage.pair[of], copies: copiesOf(stage), scope });
    await work(round);
    begun.ended();
    stage.once();
  }
}
