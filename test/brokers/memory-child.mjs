// A subscriber with the defaults, until it has handled so many, each of them at the second attempt if so wanted; prints the most memory that the process had.
import { readFileSync } from "node:fs";
import process from "node:process";
import { setTimeout } from "node:timers/promises";
import { createSubscriber } from "../../dist/index.js";
import { memory } from "../../dist/stores/memory/index.js";

const { module, options, topic, consumer, count, twice } = JSON.parse(process.argv[2]);
const [open] = Object.values(await import(new URL(`../../dist/${module}`, import.meta.url)));
const broker = open(options);
let handled = 0;
const failed = new Set();
const subscriber = createSubscriber({
  ...{ consumer, source: broker, inbox: memory(), topics: [topic] },
  handlers: {
    "*": async ({ id }) => {
      await setTimeout(50);
      if (twice && !failed.has(id)) {
        failed.add(id);
        throw new Error("not yet");
      }
      handled += 1;
    },
  },
});
await subscriber.start();
while (handled < count) await setTimeout(20);
await subscriber.drain();
await broker[Symbol.asyncDispose]();
// Not resourceUsage().maxRSS: that begins with what the process which started this one had in memory.
const peakKb = Number(/^VmHWM:\s+(\d+) kB$/m.exec(readFileSync("/proc/self/status", "utf8"))[1]);
console.log(JSON.stringify({ maxRssMiB: Math.round(peakKb / 1024) }));
process.exit(0);
