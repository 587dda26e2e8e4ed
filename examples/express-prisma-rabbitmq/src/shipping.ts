import { createSubscriber } from "waybill";
import { rabbitmq } from "waybill/rabbitmq";
import { prisma, store } from "./database.ts";

const shipping = createSubscriber({
  consumer: "shipping",
  source: rabbitmq({ url: process.env["BROKER_URL"]! }),
  inbox: store,
  topics: ["order.events"],
  handlers: {
    OrderPlaced: async (event, tx) => {
      await tx.parcel.create({ data: { orderId: event.aggregateId } });
    },
  },
});
await shipping.start();

/** Takes no new events, finishes and acknowledges those in hand, then closes Prisma's connections. */
async function stop(): Promise<void> {
  await shipping.drain();
  await prisma.$disconnect();
}
for (const signal of ["SIGINT", "SIGTERM"]) process.once(signal, () => void stop());
console.log("shipping: started");
