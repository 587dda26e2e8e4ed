import type { Outgoing, PublishResult } from "../../contracts/sink.ts";
import { runsOf } from "../../core/runs.ts";
import { skipped, stored } from "./results.ts";

/** What is sent before its answers are waited for: the client keeps it in memory, and so does a server that cannot write it yet. */
const flightBytes = 2 * 1024 * 1024;

/**
 * Flight after flight: the next message of every aggregate, none of them before the one before it is stored. A broker goes on past a
 * message that it refused, so that two of one aggregate in one flight could be reordered.
 */
export async function inFlights<T extends { readonly bytes: number }>(
  messages: readonly Outgoing[],
  batch: readonly (T | PublishResult)[],
  fly: (flight: readonly T[]) => Promise<readonly PublishResult[]>,
): Promise<readonly PublishResult[]> {
  const results = messages.map(() => skipped);
  // The next one last.
  let runs = runsOf(messages.map(({ envelope }) => envelope)).map((run) => run.reverse());
  while (runs.length > 0) {
    const flight: { readonly run: number[]; readonly at: number; readonly one: T }[] = [];
    let bytes = 0;
    for (const run of runs) {
      const at = run.at(-1)!;
      const one = batch[at]!;
      if ("status" in one) {
        results[at] = one;
        run.length = 0;
      } else if (flight.length === 0 || bytes + one.bytes <= flightBytes) {
        bytes += one.bytes;
        flight.push({ run, at, one });
      }
    }
    const flown = flight.length === 0 ? [] : await fly(flight.map(({ one }) => one));
    flight.forEach(({ run, at }, i) => {
      results[at] = flown[i]!;
      if (flown[i] === stored) run.pop();
      else run.length = 0;
    });
    runs = runs.filter((run) => run.length > 0);
  }
  return results;
}
