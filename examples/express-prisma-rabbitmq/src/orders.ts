import { randomUUID } from "node:crypto";
import express from "express";
import { createOutbox } from "waybill";
import { prisma, store } from "./database.ts";

const outbox = createOutbox({ store });

const app = express();
app.use(express.json());
app.post("/orders", async (request, response) => {
  const { total } = (request.body ?? {}) as { total?: unknown };
  if (typeof total !== "number" || !Number.isSafeInteger(total) || total <= 0) {
    response.status(400).json({ error: "total must be a whole number above 0" });
    return;
  }
  const id = randomUUID();
  await prisma.$transaction(async (tx) => {
    await tx.order.create({ data: { id, total } });
    await outbox.add(tx, { aggregateType: "Order", aggregateId: id, type: "OrderPlaced", payload: { total } });
  });
  response.status(201).json({ id });
});

const server = app.listen(Number(process.env["PORT"] ?? 3000), "127.0.0.1", () => console.log("orders: listening"));

/** Takes no new requests, then closes Prisma's connections. */
function stop(): void {
  server.close(() => void prisma.$disconnect());
  server.closeIdleConnections();
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, stop);
