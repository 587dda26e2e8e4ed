// A subscriber with the defaults, until it has handled so many; prints the most memory that the process had.
import process from "node:process";
import { setTimeout } from "node:timers/promises";
import { createSubscriber } from "../../dist/index.js";
import { memory } from "../../dist/stores/memory/index.js";

const { module, options, topic, count } = JSON.parse(process.argv[2]);
const [open] = Object.values(await import(new URL(`../../dist/${module}`, import.meta.url)));
const broker = open(options);
let handled = 0;
const subscriber = createSubscriber({
  ...{ consumer: "shop", source: broker, inbox: memory(), topics: [topic] },
  handlers: {
    "*": async () => {
      await setTimeout(50);
      handled += 1;
    },
  },
});
await subscriber.start();
while (handled < count) await setTimeout(20);
await subscriber.drain();
await broker[Symbol.asyncDispose]();
console.log(JSON.stringify({ maxRssMiB: Math.round(process.resourceUsage().maxRSS / 1024) }));
process.exit(0);
