import { setTimeout as sleep } from "node:timers/promises";
import { expect } from "vitest";
import type { Outgoing, Sink } from "../../src/contracts/sink.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";

export interface Flow {
  /** Adds events through `add` until it is true, and expects each of them to be published within a lease. */
  until(done: () => Promise<boolean>, withinMs: number): Promise<void>;
  readonly events: PathEvent[];
  /** By aggregate id, how many bytes were published. */
  readonly published: Map<string, number>;
  /** The longest that one of the added events took. */
  slowestMs(): number;
  stop(): Promise<void>;
}

/** A relay on a real server beside something that may hold it up. It must keep its lanes. */
export async function flowOn(
  store: RelayOptions["store"],
  maxBytes: number,
  add: (aggregateId: string) => Promise<unknown>,
  { leaseMs, ...options }: Partial<RelayOptions> & { readonly leaseMs: number },
): Promise<Flow> {
  const published = new Map<string, number>();
  const events: PathEvent[] = [];
  const sink: Sink = {
    name: "ordinary",
    can: { maxBytes },
    connect: async () => undefined,
    probe: async () => undefined,
    publish: async (batch: readonly Outgoing[]) =>
      batch.map(({ envelope }) => {
        published.set(envelope.aggregateId, envelope.data.byteLength);
        return { status: "stored" };
      }),
    [Symbol.asyncDispose]: async () => undefined,
  };
  const relay = createRelay({ store, sink, leaseMs, housekeeping: false, observe: (event) => void events.push(event), ...options });
  await relay.start();
  let slowest = 0;
  return {
    events,
    published,
    slowestMs: () => Math.round(slowest),
    async until(done, withinMs) {
      const began = performance.now();
      for (let n = 0; !(await done()); n++) {
        expect(performance.now() - began, "it came to no end").toBeLessThan(withinMs);
        const added = performance.now();
        await add(`flow-${n}`);
        while (!published.has(`flow-${n}`)) {
          expect(performance.now() - added, `flow-${n} waits`).toBeLessThan(leaseMs);
          await sleep(5);
        }
        slowest = Math.max(slowest, performance.now() - added);
        await sleep(50);
      }
      expect(events.filter(({ type }) => type === "lanes.lost" || type === "relay.trouble")).toEqual([]);
    },
    stop: () => relay.stop(),
  };
}
