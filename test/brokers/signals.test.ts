import { getEventListeners } from "node:events";
import { expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import type { Source } from "../../src/contracts/source.ts";
import { freshPath } from "./files.ts";

/** What Node keeps for a signal: its listeners, and the signals that AbortSignal.any made of it, which Node 20 never forgets. */
function kept(signal: AbortSignal): number {
  const made = Object.getOwnPropertySymbols(signal).find(({ description }) => description === "kDependantSignals");
  const { size = 0 } = made === undefined ? {} : ((signal as unknown as Record<symbol, { size?: number } | undefined>)[made] ?? {});
  return getEventListeners(signal, "abort").length + size;
}

test.each<[string, () => Source]>([
  ["memory", () => memoryBroker()],
  ["embedded", () => embedded({ path: freshPath() })],
])("%s leaves nothing on a signal that outlives its iterations, however they end", async (_, open) => {
  const source = open();
  const outliving = new AbortController();
  const begin = (): AsyncIterator<unknown> =>
    source.receive({ consumer: "a", topics: ["order.events"], prefetch: 1 }, outliving.signal)[Symbol.asyncIterator]();
  for (let i = 0; i < 10; i++) {
    await begin().return!();
    const waiting = begin();
    const next = waiting.next();
    await waiting.return!();
    await next;
  }
  expect(kept(outliving.signal)).toBe(0);
  const last = begin().next();
  await source[Symbol.asyncDispose]();
  await last;
  await begin().next();
  expect(kept(outliving.signal)).toBe(0);
});
