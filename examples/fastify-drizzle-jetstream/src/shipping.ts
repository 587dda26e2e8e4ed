import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, serial, text } from "drizzle-orm/pg-core";
import pg from "pg";
import { createSubscriber } from "waybill";
import { fromDrizzle } from "waybill/handles";
import { nats } from "waybill/nats";
import { postgres } from "waybill/postgres";
import { events } from "./events.js";

const parcels = pgTable("parcels", { id: serial().primaryKey(), orderId: text("order_id").notNull(), insured: integer().notNull() });
// In production, shipping has a database of its own, with a `waybill migrate` of its own.
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
pool.on("error", (error) => console.error(error.message)); // an idle connection was lost; the pool opens another
const db = drizzle(pool);
await db.execute("CREATE TABLE IF NOT EXISTS parcels (id serial PRIMARY KEY, order_id text NOT NULL, insured integer NOT NULL)");

const shipping = createSubscriber({
  consumer: "shipping",
  source: nats({ url: process.env["BROKER_URL"]! }),
  inbox: postgres({ pool, tx: fromDrizzle, db }),
  topics: ["order.events"],
  events,
  handlers: {
    OrderPlaced: async (event, tx) => {
      await tx.insert(parcels).values({ orderId: event.aggregateId, insured: event.payload.total });
    },
  },
});
await shipping.start();

/** Takes no new events, finishes and acknowledges those in hand, then closes the pool. */
async function stop(): Promise<void> {
  await shipping.drain();
  await pool.end();
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void stop());
console.log("shipping: started");
