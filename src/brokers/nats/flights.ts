import type { Outgoing } from "../../contracts/sink.ts";

/** What of one publish is under way at once, each message of another aggregate: the client and the server keep it in memory. */
const inFlight = { messages: 1_024, bytes: 2 * 1024 * 1024 };

/** Runs that go side by side, one message of each at a time. A message alone is always taken: the server decides. */
export function flightsOf(batch: readonly Outgoing[], runs: readonly (readonly number[])[]): readonly (readonly (readonly number[])[])[] {
  const flights: (readonly number[])[][] = [];
  let flight: (readonly number[])[] = [];
  let bytes = 0;
  for (const run of runs) {
    const largest = run.reduce((most, at) => Math.max(most, batch[at]!.envelope.data.byteLength), 0);
    if (flight.length === inFlight.messages || (flight.length > 0 && bytes + largest > inFlight.bytes)) {
      flights.push(flight);
      flight = [];
      bytes = 0;
    }
    flight.push(run);
    bytes += largest;
  }
  return [...flights, flight];
}
