import { performance } from "node:perf_hooks";
import type { RelayOptions } from "../../src/relay/create-relay.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { createSink } from "./sink.ts";
import { spoiled, type Bug } from "./spoiled.ts";

/** What a relay of the play is told. */
export interface RelayTask {
  readonly name: string;
  readonly url: string;
  readonly port: number;
  readonly mode: string;
  readonly options: Omit<RelayOptions, "store" | "sink" | "observe">;
  readonly bug?: { readonly name: Bug; readonly after: number };
}

const task = JSON.parse(process.argv[2]!) as RelayTask;
const tell = (line: object): void => void process.stdout.write(`${JSON.stringify(line)}\n`);

// Its parent has gone.
process.stdin.on("end", () => process.exit(3)).resume();

/** Says when this process did not get to run, which costs leases and publishes that nothing else is to blame for. */
const everyMs = 100;
const lateMs = 300;
let last = performance.now();
setInterval(() => {
  const now = performance.now();
  if (now - last > everyMs + lateMs) tell({ type: "late", ms: Math.round(now - last - everyMs) });
  last = now;
}, everyMs).unref();

const quiet = new Set(["relay.claimed", "relay.published", "relay.failed"]);
const store = postgres({ url: task.url, connections: 6 });
const sink = createSink(task.name, task.port);
const relay = createRelay({
  store,
  sink: task.bug === undefined ? sink : spoiled(sink, task.bug.name, task.bug.after),
  housekeeping: false,
  observe: (event) => {
    if (!quiet.has(event.type)) tell(event);
  },
  relayId: task.name,
  ...task.options,
  mode: task.mode as "poll" | "tail" | "auto",
});

process.on("SIGTERM", () => void relay.drain());
let code = 0;
try {
  await relay.start();
  tell({ type: "ready" });
  await relay.stopped;
} catch (error) {
  code = 1;
  tell({ type: "failed", error: String(error), stack: error instanceof Error ? error.stack : undefined });
}
await sink[Symbol.asyncDispose]();
await store[Symbol.asyncDispose]();
tell({ type: "ended", code });
process.exit(code);
