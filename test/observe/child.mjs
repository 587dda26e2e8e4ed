// A subscriber between a broker and an SQLite file, until it is killed.
import process from "node:process";
import { createSubscriber } from "../../dist/index.js";
import { sqlite } from "../../dist/stores/sqlite/index.js";

const { module, options, path, topic } = JSON.parse(process.argv[2]);
const [open] = Object.values(await import(new URL(`../../dist/${module}`, import.meta.url)));
const subscriber = createSubscriber({
  ...{ consumer: "shipping", source: open(options), inbox: sqlite({ path }), topics: [topic], observe: false },
  handlers: { "*": () => undefined },
});
process.stdin.on("close", () => process.exit(1)).resume(); // the test is gone
await subscriber.start();
console.log(JSON.stringify({ type: "ready" }));
