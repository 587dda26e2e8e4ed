import { randomUUID } from "node:crypto";
import { drizzle } from "drizzle-orm/node-postgres";
import { integer, pgTable, text } from "drizzle-orm/pg-core";
import Fastify from "fastify";
import pg from "pg";
import { createOutbox } from "waybill";
import { fromDrizzle } from "waybill/handles";
import { postgres } from "waybill/postgres";
import { z } from "zod";
import { events } from "./events.js";

const orders = pgTable("orders", { id: text().primaryKey(), total: integer().notNull() });
const pool = new pg.Pool({ connectionString: process.env["DATABASE_URL"] });
pool.on("error", (error) => console.error(error.message)); // an idle connection was lost; the pool opens another
const db = drizzle(pool);
await db.execute("CREATE TABLE IF NOT EXISTS orders (id text PRIMARY KEY, total integer NOT NULL)");

const outbox = createOutbox({ store: postgres({ pool }), tx: fromDrizzle, events });
const body = z.object({ total: z.number().int().positive() });

const app = Fastify();
app.post("/orders", async (request, reply) => {
  const { success, data } = body.safeParse(request.body);
  if (!success) return reply.code(400).send({ error: "total must be a whole number above 0" });
  const id = randomUUID();
  await db.transaction(async (tx) => {
    await tx.insert(orders).values({ id, total: data.total });
    await outbox.add(tx, { type: "OrderPlaced", aggregateId: id, payload: { total: data.total } });
  });
  return reply.code(201).send({ id });
});

/** Takes no new requests, then closes the pool. The outbox has no connection of its own. */
async function stop(): Promise<void> {
  await app.close();
  await pool.end();
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void stop());
console.log(`orders: listening on ${await app.listen({ port: Number(process.env["PORT"] ?? 3000), host: "127.0.0.1" })}`);
