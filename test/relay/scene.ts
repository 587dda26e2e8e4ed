import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type Relay, type RelayOptions } from "../../src/relay/create-relay.ts";
import { manualClock, type ManualClock } from "../../src/testing/manual-clock.ts";
import type { Bench, benches } from "../support/outbox.ts";
import { type Script, scriptedSink } from "../support/scripted-sink.ts";

export const start = Date.UTC(2030, 0, 1);

export interface Scene extends AsyncDisposable {
  readonly bench: Bench;
  readonly clock: ManualClock;
  readonly sink: ReturnType<typeof scriptedSink>;
  readonly events: PathEvent[];
  readonly relay: Relay;
}

/** A relay at work, under a clock that stands still, and a broker that does as it is told. */
export async function scene(open: (typeof benches)[string], script: Script, options: Partial<RelayOptions> = {}): Promise<Scene> {
  const clock = manualClock(start);
  const bench = await open(clock);
  const sink = scriptedSink(script);
  const events: PathEvent[] = [];
  const relay = createRelay({
    store: bench.store,
    sink,
    clock,
    pollIntervalMs: 20,
    // A row's age is told by the database, for which it is not 2030: what was discarded just now would be purged.
    housekeeping: false,
    observe: (event) => void events.push(event),
    ...options,
  });
  await relay.start();
  return {
    bench,
    clock,
    sink,
    events,
    relay,
    async [Symbol.asyncDispose]() {
      await relay.stop();
      await bench[Symbol.asyncDispose]();
    },
  };
}
