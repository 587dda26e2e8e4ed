import type { BrokerStarter } from "../../contracts/starter.ts";

export const starter: BrokerStarter = {
  word: "nats",
  packages: ["@nats-io/transport-node"],
  url: "nats://127.0.0.1:4222",
  service: {
    lines: [
      "image: nats:2-alpine",
      'command: ["--jetstream", "--store_dir=/data", "--http_port=8222"]',
      'ports: ["127.0.0.1:4222:4222"]',
      "healthcheck:",
      '  test: ["CMD", "wget", "-qO-", "http://127.0.0.1:8222/healthz"]',
      "  interval: 2s",
      "  retries: 30",
    ],
    data: "/data",
  },
  options: "{ url: config.broker }",
  consumers: true,
};
