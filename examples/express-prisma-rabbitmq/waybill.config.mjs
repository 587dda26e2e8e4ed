export default {
  store: process.env.DATABASE_URL,
  broker: process.env.BROKER_URL,
  topics: ["order.events"],
  schema: "waybill", // out of Prisma's sight: it offers to drop tables that no model has
};
