export default {
  store: process.env.DATABASE_URL,
  broker: process.env.BROKER_URL,
  topics: ["order.events"],
  schema: "waybill", // hidden from Prisma, which offers to drop tables that no model has
};
