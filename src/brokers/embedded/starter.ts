import type { BrokerStarter } from "../../contracts/starter.ts";

export const starter: BrokerStarter = {
  word: "embedded",
  packages: [],
  url: "embedded:./broker.db",
  service: null,
  options: '{ path: config.broker.replace("embedded:", "") }',
  consumers: false,
};
