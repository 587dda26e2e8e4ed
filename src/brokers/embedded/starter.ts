import type { BrokerStarter } from "../../contracts/starter.ts";

export const starter: BrokerStarter = {
  word: "embedded",
  packages: ["libsql"],
  url: "embedded:./broker.db",
  service: null,
  options: '{ path: config.broker.replace("embedded:", "") }',
  consumers: false,
};
