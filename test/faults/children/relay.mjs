import { existsSync } from "node:fs";
import { performance } from "node:perf_hooks";
import { embedded } from "../../../dist/brokers/embedded/index.js";
import { createRelay } from "../../../dist/index.js";
import { sqlite } from "../../../dist/stores/sqlite/index.js";
import { config, die, hear, serve, tell } from "./child.mjs";

const store = sqlite({ path: config.store });
const broker = embedded({ path: config.broker });
const quiet = new Set(["relay.claimed", "relay.published"]);

/**
 * `tell`: says that it passes. `pause`: waits until the test says go. `die`: ends. The last two for any event, or only
 * where this one is among those at hand.
 */
const failpoints = {
  async hit(at, ids) {
    if (config.tell?.includes(at)) tell({ type: "passes", at, ids });
    if (config.die?.at === at && (config.die.id === undefined || ids.includes(config.die.id))) {
      tell({ type: "dies", at, width: widths.get(config.die.id) });
      die();
    }
    if (config.pause?.at === at && (config.pause.id === undefined || ids.includes(config.pause.id))) {
      tell({ type: "paused", at, ids });
      await hear("go");
    }
  },
};

/** How many events came with each one in its window. */
const widths = new Map();
const outbox = {
  ...store.outbox,
  async claim(...asked) {
    const window = await store.outbox.claim(...asked);
    for (const { envelope } of window.claims) widths.set(envelope.id, window.claims.length);
    return window;
  },
};

/** `slowLook`: the first renewal of a lease that had run out is followed by a look that waits until the test says look. */
let renewedAt = Infinity;
let waits = false;
const leases = {
  ...store.leases,
  async renew(relay, ttlMs, ...about) {
    const before = renewedAt;
    await store.leases.renew(relay, ttlMs, ...about);
    renewedAt = performance.now(); // it may have been frozen within the renewal
    waits = config.slowLook === true && renewedAt - before > ttlMs;
    if (waits) tell({ type: "renewed" });
  },
  async look() {
    if (waits) await hear("look");
    return store.leases.look();
  },
};

/** While the flag file is there, the broker does what `refuse.as` says with events of `refuse.aggregates` (all when not given). */
const sink = {
  ...broker,
  async publish(batch, signal) {
    const refused = ({ envelope }) => config.refuse.aggregates?.includes(envelope.aggregateId) ?? true;
    if (config.refuse === undefined || !existsSync(config.refuse.flag)) return broker.publish(batch, signal);
    const stored = await broker.publish(
      batch.filter((message) => !refused(message)),
      signal,
    );
    const stopped = new Set();
    let next = 0;
    return batch.map((message) => {
      if (!refused(message)) return stored[next++];
      const key = `${message.envelope.aggregateType}/${message.envelope.aggregateId}`;
      if (stopped.has(key)) return { status: "skipped" };
      stopped.add(key);
      const error = new Error("the flag file is there");
      if (config.refuse.as === "unknown") return { status: "unknown", error };
      return { status: "refused", blame: config.refuse.as, retryable: true, error };
    });
  },
  async probe(topic, signal) {
    if (config.refuse !== undefined && existsSync(config.refuse.flag)) throw new Error("the flag file is there");
    return broker.probe(topic, signal);
  },
};

const relay = createRelay({
  store: { ...store, outbox, leases },
  sink,
  failpoints,
  observe: (event) => {
    if (!quiet.has(event.type)) tell(event);
  },
  ...config.options,
});
await serve(relay, store, broker);
