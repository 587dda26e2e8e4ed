import type { BrokerStarter } from "../../contracts/starter.ts";

export const starter: BrokerStarter = {
  word: "redis",
  packages: ["ioredis"],
  url: "redis://127.0.0.1:6379/0",
  service: {
    lines: [
      "image: redis:7",
      'command: ["redis-server", "--appendonly", "yes", "--appendfsync", "always"]',
      'ports: ["127.0.0.1:6379:6379"]',
      "healthcheck:",
      '  test: ["CMD", "redis-cli", "ping"]',
      "  interval: 2s",
      "  retries: 30",
    ],
    data: "/data",
  },
  options: "{ url: config.broker }",
  consumers: true,
};
