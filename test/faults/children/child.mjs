import { EventEmitter } from "node:events";
import { writeSync } from "node:fs";
import { createInterface } from "node:readline";

/** What the test asks of this process. */
export const config = JSON.parse(process.argv[2] ?? "{}");

/** One line for the test; it is out before this returns, whatever happens to this process next. */
export function tell(line) {
  writeSync(1, `${JSON.stringify(line)}\n`);
}

const told = new Set();
const words = new EventEmitter().setMaxListeners(0);

createInterface({ input: process.stdin })
  .on("line", (word) => {
    told.add(word);
    words.emit(word);
  })
  .on("close", () => process.exit(1)); // the test is gone

/** Resolves once the test has said this word. */
export function hear(word) {
  return new Promise((resolve) => {
    if (told.has(word)) resolve();
    else words.once(word, resolve);
  });
}

export const heard = (word) => told.has(word);

/** Nothing can come between: the process is gone when this would return. */
export function die() {
  process.kill(process.pid, "SIGKILL");
  for (;;);
}

/** Runs until SIGTERM, drains, and ends. */
export async function serve(service, ...resources) {
  process.once("SIGTERM", () => void service.drain());
  await service.start();
  tell({ type: "ready" });
  await service.stopped;
  for (const resource of resources) await resource[Symbol.asyncDispose]();
  process.exit(0);
}
