import { expect, test } from "vitest";
import { chosenOptions, relay } from "../../src/cli/commands/relay.ts";
import { configKeys, readConfig } from "../../src/cli/config.ts";
import { parse } from "../../src/cli/parse.ts";
import type { ConfigFile } from "../../src/config-file.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { housekeepingSettings, relaySettings } from "../../src/relay/settings.ts";
import { kafka } from "../../src/brokers/kafka/index.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { memory } from "../../src/stores/memory/index.ts";

const file: ConfigFile = {
  coordination: "static",
  own: "0-21",
  mode: "auto",
  logBytes: 1_000_000,
  relayId: "left",
  batch: 7,
  batchesInFlight: 2,
  windowBytes: 4_096,
  pollInterval: "1s",
  lease: "20s",
  publishTimeout: "5s",
  route: "{event_type}",
  onlyTopics: ["order.events"],
  source: "/shop",
  retry: { delaysMs: [1], jitter: 0 },
  probeMs: { first: 10, last: 100 },
  topicRecords: 5,
  skip: ["Telemetry"],
  housekeeping: { everyMs: 60_000, warn: { deadRows: 5 } },
  retention: "1d",
  keyRetention: "2d",
  archive: async () => undefined,
};

const settingsOf = (args: readonly string[], content: object) =>
  chosenOptions({ config: readConfig(content, "x.mjs") }, parse(relay, args).values);

test("every option of createRelay can be set in the configuration file", () => {
  const chosen = settingsOf([], file);
  expect(Object.keys(chosen).sort()).toEqual([...Object.keys(relaySettings), "housekeeping"].sort());
  expect(chosen).toMatchObject({
    relayId: "left",
    batchesInFlight: 2,
    leaseMs: 20_000,
    own: Array.from({ length: 22 }, (_, lane) => lane),
  });
  const { housekeeping } = chosen;
  expect(Object.keys(housekeeping === false ? {} : (housekeeping ?? {})).sort()).toEqual(
    [...Object.keys(housekeepingSettings), "archive", "warn"].sort(),
  );
  expect(() => createRelay({ store: memory(), sink: memoryBroker(), ...chosen })).not.toThrow();
});

test("a flag wins over the file", () => {
  const args = ["--batches-in-flight", "9", "--relay-id", "right", "--batch", "8", "--lease", "30s"];
  expect(settingsOf(args, file)).toMatchObject({ batchesInFlight: 9, relayId: "right", batch: 8, leaseMs: 30_000 });
  expect(settingsOf(["--no-housekeeping"], file)).toMatchObject({ housekeeping: false });
});

test.each([
  [{ batchesInFlight: 0 }, "x.mjs: batchesInFlight must be a whole number from 1 to 1000"],
  [{ listen: "yes" }, "x.mjs: listen must be true or false"],
  [{ probeMs: { first: 5, last: 1 } }, "x.mjs: probeMs needs first and last in milliseconds, such as { first: 1000, last: 30000 }"],
  [{ probeMs: { firts: 5 } }, 'x.mjs: probeMs has no option "firts": did you mean first?'],
  [{ housekeeping: { every: "1h" } }, 'x.mjs: housekeeping has no option "every": did you mean everyMs?'],
  [{ observe: true }, "x.mjs: observe must be a function that hears path events"],
])("%j is refused", (content, message) => {
  expect(() => readConfig(content, "x.mjs")).toThrow(message);
});

test("stores and brokers of this package are what the file takes, also by their types", () => {
  const pool = { connect: () => undefined, totalCount: 0 } as never;
  const given: ConfigFile = { store: postgres({ pool }), db: pool, broker: () => kafka({ url: "kafka://localhost:9092" }) };
  expect(readConfig(given, "x.mjs")).toEqual(given);
  expect(readConfig({ store: memory(), broker: memoryBroker() } satisfies ConfigFile, "x.mjs")).toHaveProperty("broker.name", "memory");
});

test("listen goes to the store, and no key is without a reader", () => {
  expect(readConfig({ listen: true }, "x.mjs")).toEqual({ listen: true });
  expect(new Set(configKeys()).size).toBe(configKeys().length);
});
