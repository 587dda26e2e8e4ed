import type { BrokerStarter } from "../../contracts/starter.ts";

export const starter: BrokerStarter = {
  word: "rabbitmq",
  packages: ["amqplib"],
  url: "amqp://shop:shop@127.0.0.1:5672",
  service: {
    lines: [
      "image: rabbitmq:3.13-management",
      "hostname: rabbitmq # the data belongs to this name",
      "environment: { RABBITMQ_DEFAULT_USER: shop, RABBITMQ_DEFAULT_PASS: shop }",
      'ports: ["127.0.0.1:5672:5672", "127.0.0.1:15672:15672"]',
      "healthcheck:",
      '  test: ["CMD", "rabbitmq-diagnostics", "--quiet", "check_port_connectivity"]',
      "  interval: 5s",
      "  timeout: 20s",
      "  retries: 30",
    ],
    data: "/var/lib/rabbitmq",
  },
  options: "{ url: config.broker }",
  consumers: true,
};
