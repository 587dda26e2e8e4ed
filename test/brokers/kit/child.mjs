// A relay or a subscriber between PostgreSQL and a broker, until it is killed or told to end.
import process from "node:process";
import { createRelay, createSubscriber } from "../../../dist/index.js";
import { postgres } from "../../../dist/stores/postgres/index.js";

const { role, name, store: url, broker: brokerUrl, module, topic } = JSON.parse(process.argv[2]);
const [open] = Object.values(await import(new URL(`../../../dist/${module}`, import.meta.url)));
const store = postgres({ url });
const broker = open({ url: brokerUrl });
const quiet = ["relay.claimed", "relay.published", "subscriber.handled"];
const observe = (event) => quiet.includes(event.type) || console.log(JSON.stringify(event));
const times = { leaseMs: 1_500, pollIntervalMs: 20, batch: 40, batchesInFlight: 2, probeMs: { first: 50, last: 200 } };
const services = {
  relay: () => createRelay({ store, sink: broker, relayId: name, housekeeping: false, observe, ...times }),
  subscriber: () =>
    createSubscriber({
      ...{ consumer: "shop", source: broker, inbox: store, topics: [topic], owner: name, seatMs: 1_500, prefetch: 64, observe },
      handlers: {
        Changed: async (event, tx) => {
          await tx.query("INSERT INTO effects (aggregate, n) VALUES ($1, $2)", [event.aggregateId, event.payload.n]);
        },
      },
    }),
};
const service = services[role]();
process.once("SIGTERM", () => void service.drain());
process.stdin.on("close", () => process.exit(1)).resume(); // the test is gone
await service.start();
console.log(JSON.stringify({ type: "ready" }));
await service.stopped;
await broker[Symbol.asyncDispose]();
await store[Symbol.asyncDispose]();
process.exit(0);
