import { embedded } from "../../../dist/brokers/embedded/index.js";
import { createSubscriber } from "../../../dist/index.js";
import { sqlite } from "../../../dist/stores/sqlite/index.js";
import { config, die, serve, tell } from "./child.mjs";

const store = sqlite({ path: config.store });
const broker = embedded({ path: config.broker });
const quiet = new Set(["subscriber.handled"]);

const failpoints = {
  hit(at, [id]) {
    if (config.die?.at !== at || config.die.id !== id) return;
    tell({ type: "dies", at });
    die();
  },
};

const subscriber = createSubscriber({
  consumer: "effects",
  source: broker,
  inbox: store,
  handlers: {
    "*": (event, tx) => {
      tx.prepare("INSERT INTO effects (event_id, aggregate_type, aggregate_id, n, doomed) VALUES (?, ?, ?, ?, ?)").run(
        event.id,
        event.aggregateType,
        event.aggregateId,
        event.payload.n,
        event.payload.doomed ? 1 : 0,
      );
    },
  },
  failpoints,
  observe: (event) => {
    if (!quiet.has(event.type)) tell(event);
  },
  ...config.options,
});
await serve(subscriber, store, broker);
