// A further relay of the relay side; it reports each acknowledged batch to its parent.
import { openBroker } from "./brokers.mjs";
import { from } from "./package.mjs";
import { relayOf, storedOf } from "./relay.mjs";

const task = JSON.parse(process.argv[2]);
const { postgres } = await from(task.root, "stores/postgres/index.js");
const store = postgres({ url: task.store, schema: task.schema });
const broker = await openBroker(task);
let relay = null;
process.on("message", async (order) => {
  if (order === "start") {
    relay = await relayOf(task, store, broker, (_, results) => process.send(storedOf(results)));
    await relay.start();
  } else {
    await relay.drain();
    process.send("drained");
  }
});
process.once("disconnect", () => process.exit(0)); // the worker that started it has ended
process.send("ready");
