export default {
  store: process.env.DATABASE_URL,
  broker: process.env.BROKER_URL,
  topics: ["order.events"],
};
