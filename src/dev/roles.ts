import { embedded } from "../brokers/embedded/index.ts";
import type { Sink } from "../contracts/sink.ts";
import type { Source } from "../contracts/source.ts";
import { systemClock } from "../core/clock.ts";
import { uuidv7 } from "../core/ids.ts";
import { systemRandom } from "../core/random.ts";
import { createRelay } from "../relay/create-relay.ts";
import { defaultDriver } from "../drivers/sqlite/driver.ts";
import { sqlite } from "../stores/sqlite/index.ts";
import { byDualWrite, throughOutbox } from "./announce.ts";
import { gated } from "./gate.ts";
import { running, type Reporter, type Running } from "../proof/crew/child.ts";
import type { Job } from "./jobs.ts";
import { createOrders } from "./orders.ts";
import { serveOrders } from "./orders-http.ts";
import { batch, batchesInFlight, leaseMs, probeMs, retryDelaysMs, shopFiles } from "./shop.ts";
import { runSubscriber } from "./subscribers.ts";

/** Runs one role of the shop in this process. */
export function play(job: Job, report: Reporter): Promise<Running> {
  switch (job.role) {
    case "orders":
      return runOrders(job, report);
    case "relay":
      return runRelay(job, report);
    case "subscriber":
      return runSubscriber(job, report, brokerOf(job.folder));
  }
}

function brokerOf(folder: string): Sink & Source {
  const files = shopFiles(folder);
  return gated(embedded({ path: files.broker }), files.stopped);
}

const never = new Promise<never>(() => undefined);

async function runOrders({ folder, naive, port }: Job & { role: "orders" }, report: Reporter): Promise<Running> {
  const { orders: path } = shopFiles(folder);
  const store = sqlite({ path });
  const db = (await defaultDriver())(path);
  db.exec("PRAGMA busy_timeout = 50");
  const broker = naive ? brokerOf(folder) : null;
  const newId = uuidv7(systemClock, systemRandom);
  const announce = broker === null ? throughOutbox(store) : byDualWrite(broker, (why) => report.did(why, 0));
  const server = await serveOrders(createOrders({ db, store, announce, newId }), { port, newId, did: (what) => report.did(what, 1) });
  return {
    port: server.port,
    async drain() {
      await server.close();
      db.close();
      await store[Symbol.asyncDispose]();
      await broker?.[Symbol.asyncDispose]();
    },
    stopped: never,
  };
}

async function runRelay({ name, folder }: Job & { role: "relay" }, report: Reporter): Promise<Running> {
  const store = sqlite({ path: shopFiles(folder).orders });
  const sink = brokerOf(folder);
  const relay = createRelay({
    ...{ store, sink, leaseMs, probeMs, batch, batchesInFlight },
    source: "/waybill/dev",
    housekeeping: false, // the summary is counted from the tables
    retry: { delaysMs: retryDelaysMs, jitter: 0 },
    relayId: `${name}.${process.pid}`,
    observe(event) {
      if (event.type === "relay.published") report.did(`published ${event.count}`, event.count);
      else report.path(event);
    },
  });
  return await running(relay, [sink, store]);
}
