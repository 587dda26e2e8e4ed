import type { Server } from "../../contracts/adapter.ts";
import { asError, WaybillError } from "../../core/errors.ts";

/** A server whose URLs have one scheme for plain text, and another for verified encryption. */
export const guardedBy = (scheme: string): Pick<Server, "remedy" | "guard"> => ({
  remedy: `write the URL with ${scheme}:`,
  guard: (url) => (url.toLowerCase().startsWith(`${scheme}:`) ? "verified" : "none"),
});

/** For a broker that deletes by rules of its own. */
export const purgesItself = (why: string) => (): Promise<never> => Promise.reject(new WaybillError("UNSUPPORTED", why));

type Step = () => Promise<void>;

/** Runs the stages one after the other, and the steps of a stage at once. A failure stops nothing. Rejects in the end with all failures. */
export async function inStages(stages: readonly (readonly Step[])[]): Promise<void> {
  const failed: Error[] = [];
  for (const steps of stages) {
    const tried = await Promise.allSettled(steps.map((step) => step()));
    failed.push(...tried.filter((one) => one.status === "rejected").map(({ reason }) => asError(reason)));
  }
  if (failed.length === 0) return;
  const words = new Set(failed.map(({ message }) => message));
  throw new WaybillError("DESTINATION_UNAVAILABLE", [...words].join("; "), { cause: failed[0] });
}
