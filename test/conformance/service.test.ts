import { describe, test } from "vitest";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { serviceSuite } from "../../src/conformance/index.ts";
import { createService, type Service } from "../../src/core/service.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";

const suiteOf = (create: () => Service): void =>
  serviceSuite({ test, create: async () => ({ service: create(), close: async () => undefined }) });

describe("a bare service", () => {
  suiteOf(() =>
    createService(async ({ draining, ready }) => {
      ready();
      if (!draining.aborted) await new Promise((resolve) => draining.addEventListener("abort", resolve));
    }),
  );
});

describe("a relay", () => {
  suiteOf(() => createRelay({ store: memory(), sink: memoryBroker() }));
});

describe("a subscriber", () => {
  suiteOf(() =>
    createSubscriber({
      consumer: "billing",
      source: memoryBroker(),
      inbox: memory(),
      topics: ["order.events"],
      handlers: { OrderPlaced: () => undefined },
    }),
  );
});
