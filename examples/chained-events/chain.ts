/**
 * A handler that adds an event of its own: an order is placed, payment takes the money and adds an event, shipping sends
 * the parcel. Payment commits its row, its event and the mark for the order's event in one transaction. So money is never
 * taken without an event that says so, and a redelivery does not take it twice.
 */
import { setTimeout as sleep } from "node:timers/promises";
import Database from "libsql";
import { createOutbox, createRelay, createSubscriber } from "waybill";
import { embedded } from "waybill/embedded";
import { sqlite } from "waybill/sqlite";

// One client for all connections: two SQLite libraries in one process would lose each other's locks on a file.
const open = (path: string): Database.Database => new Database(path);
const db = open("shop.db");
db.exec("PRAGMA busy_timeout = 5000");
db.exec("CREATE TABLE IF NOT EXISTS orders (id TEXT PRIMARY KEY, total INTEGER NOT NULL)");
db.exec("CREATE TABLE IF NOT EXISTS payments (order_id TEXT, amount INTEGER NOT NULL)");
db.exec("CREATE TABLE IF NOT EXISTS parcels (order_id TEXT)");

const store = sqlite({ path: "shop.db", open });
const broker = embedded({ path: "broker.db" });
await store.schema.migrate();
const outbox = createOutbox({ store });

const payment = createSubscriber({
  consumer: "payment",
  source: broker,
  inbox: store,
  topics: ["order.events"],
  handlers: {
    async OrderPlaced(event, tx) {
      const { total } = event.payload as { total: number };
      tx.prepare("INSERT INTO payments VALUES (?, ?)").run(event.aggregateId, total);
      await outbox.add(tx, {
        aggregateType: "Payment",
        aggregateId: event.aggregateId,
        type: "PaymentTaken",
        payload: { amount: total },
        headers: { "caused-by": event.id },
      });
    },
  },
});

const shipping = createSubscriber({
  consumer: "shipping",
  source: broker,
  inbox: store,
  topics: ["payment.events"],
  handlers: { PaymentTaken: (event, tx) => void tx.prepare("INSERT INTO parcels VALUES (?)").run(event.aggregateId) },
});

const relay = createRelay({ store, sink: broker });
await Promise.all([relay.start(), payment.start(), shipping.start()]);

const orders = ["o-1", "o-2", "o-3"];
for (const [i, id] of orders.entries()) {
  await outbox.transaction(db, (tx, events) => {
    const total = (i + 1) * 100;
    tx.prepare("INSERT INTO orders VALUES (?, ?)").run(id, total);
    events.add({ aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { total } });
  });
}

const parcels = db.prepare("SELECT order_id, amount FROM parcels JOIN payments USING (order_id) ORDER BY order_id");
while (parcels.all().length < orders.length) await sleep(20);
for (const { order_id, amount } of parcels.all() as { order_id: string; amount: number }[]) {
  console.log(`${order_id}: placed, paid ${amount}, sent`);
}

await Promise.all([relay.drain(), payment.drain(), shipping.drain()]);
db.close();
