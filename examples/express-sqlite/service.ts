/**
 * A service that takes orders over HTTP, and everything behind it, in one file and one process:
 *
 *   curl -X POST localhost:3000/orders -H 'content-type: application/json' -d '{"total": 4200}'
 *   curl localhost:3000/parcels/<the id that came back>
 */
import { randomUUID } from "node:crypto";
import { once } from "node:events";
import type { AddressInfo } from "node:net";
import express from "express";
import Database from "libsql";
import { createOutbox, createRelay, createSubscriber } from "waybill";
import { embedded } from "waybill/embedded";
import { sqlite } from "waybill/sqlite";

// One client for all connections: two SQLite libraries in one process would lose each other's locks on a file.
const open = (path: string): Database.Database => new Database(path);
const db = open("shop.db");
db.exec("PRAGMA busy_timeout = 5000");
db.exec("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total INTEGER NOT NULL)");
db.exec("CREATE TABLE IF NOT EXISTS parcels (order_id TEXT PRIMARY KEY, label TEXT NOT NULL)");

const store = sqlite({ path: "shop.db", open });
const broker = embedded({ path: "broker.db" });
await store.schema.migrate();

const outbox = createOutbox({ store });
const relay = createRelay({ store, sink: broker });
const shipping = createSubscriber({
  consumer: "shipping",
  source: broker,
  inbox: store,
  topics: ["order.events"],
  handlers: {
    // Through `tx`, so that the parcel and the mark that this event is done are committed together.
    OrderPlaced: (event, tx) =>
      void tx.prepare("INSERT INTO parcels VALUES (?, ?)").run(event.aggregateId, `to whom it concerns: ${event.aggregateId}`),
  },
});

const app = express();
app.use(express.json());

app.post("/orders", async (request, response) => {
  const { total } = (request.body ?? {}) as { total?: unknown };
  if (typeof total !== "number" || !Number.isSafeInteger(total) || total <= 0) {
    response.status(400).json({ error: "total must be a whole number above 0" });
    return;
  }
  const id = randomUUID();
  // The order and its event, or neither.
  await outbox.transaction(db, (tx, events) => {
    tx.prepare("INSERT INTO orders VALUES (?, ?)").run(id, total);
    events.add({ aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { id, total } });
  });
  response.status(201).json({ id });
});

app.get("/parcels/:orderId", (request, response) => {
  const [parcel] = db.prepare("SELECT order_id, label FROM parcels WHERE order_id = ?").all(request.params.orderId);
  if (parcel === undefined) response.status(404).json({ error: "not yet" });
  else response.json(parcel);
});

await Promise.all([relay.start(), shipping.start()]);
const server = app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1");
await once(server, "listening");

/** Stops new requests, finishes work in hand, then closes the database. Waybill's idle connections do not keep the process alive. */
async function stop(): Promise<void> {
  server.close();
  await once(server, "close");
  await Promise.all([relay.drain(), shipping.drain()]);
  db.close();
}
for (const signal of ["SIGINT", "SIGTERM"] as const) process.once(signal, () => void stop());
console.log(`listening on http://127.0.0.1:${(server.address() as AddressInfo).port}`);
