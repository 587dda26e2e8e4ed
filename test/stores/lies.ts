import { expect } from "vitest";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { Store } from "../../src/contracts/store.ts";
import { isWaybillError } from "../../src/core/errors.ts";

/** What JavaScript says when it stumbles over an answer. */
export const javascripts =
  /is not (a function|iterable|defined)|Cannot (read|convert)|undefined|\bNaN\b|Invalid (array|typed|time)|out of (range|bounds)|outside buffer|Unexpected (token|end)|Should not|beyond|ERR_/i;
/** What a terminal may obey. */
export const controls = /[\x00-\x08\x0b-\x1f\x7f-\x9f]/;

/** Every call of a relay, a subscriber and an operator fails in our words while the server lies, or does not fail. */
export async function expectOurWords<Db, Tx>(store: Store<Db, Tx>, misread: boolean): Promise<void> {
  const { id } = sampleEvent({});
  const holding = { relay: "relay", lanes: new Map([[1, 1n]]) };
  const by = { who: "test", dryRun: true };
  const calls: Readonly<Record<string, () => Promise<unknown>>> = {
    check: () => store.schema.check(),
    look: () => store.leases.look(),
    renew: () => store.leases.renew("relay", 1_000),
    take: () => store.leases.take("relay", [1, 2]),
    claim: () => store.outbox.claim(holding, { limit: 5, open: ["*"], narrow: false }),
    show: () => store.operator.show(id),
    status: () => store.operator.status(),
    list: () => store.operator.list({ limit: 5 }),
    redrive: () => store.operator.redrive({}, by),
    sit: () => store.inbox.sit({ consumer: "c", topic: "t", owner: "o" }, 1_000),
    once: () => store.inbox.once({ consumer: "c", id }, 1, () => undefined),
    "once, with several": () => store.inbox.once({ consumer: "c", id, also: ["another"] }, 1, () => undefined),
    failed: () => store.inbox.failed({ consumer: "c", id }, "an error"),
    forget: () => store.inbox.forget(new Date(0), 10),
    groups: () => store.letters.groups({}),
    letters: () => store.letters.list({ limit: 5 }),
    letter: () => store.letters.show(1n),
    redriven: () => store.letters.redriven("c", "t", 5),
    consumers: () => store.consumers.look(),
    watch: async () => store.housekeeping?.watch?.(),
    partitions: async () => store.housekeeping?.partitions?.create(),
    examine: async () => store.examine?.([], AbortSignal.timeout(5_000)),
  };
  let failed = 0;
  for (const [what, call] of Object.entries(calls)) {
    const error: unknown = await within(10_000, what, call()).then(
      () => null,
      (thrown: unknown) => thrown,
    );
    if (error === null) continue;
    failed += 1;
    const { message } = error as Error;
    expect(message, what).not.toMatch(javascripts);
    expect(message, what).not.toMatch(controls);
    expect(message.length, what).toBeLessThanOrEqual(2_000);
    if (misread) expect(isWaybillError(error), `${what}: ${message}`).toBe(true);
  }
  expect(failed).toBeGreaterThan(5);
}
