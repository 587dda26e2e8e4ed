import type { BrokerStarter } from "../../contracts/starter.ts";

export const starter: BrokerStarter = {
  word: "kafka",
  packages: ["@platformatic/kafka"],
  url: "kafka://127.0.0.1:9092",
  service: {
    lines: [
      "image: apache/kafka:4.1.0",
      'ports: ["127.0.0.1:9092:9092"]',
      "environment:",
      "  KAFKA_NODE_ID: 1",
      "  KAFKA_PROCESS_ROLES: broker,controller",
      "  KAFKA_CONTROLLER_QUORUM_VOTERS: 1@localhost:9093",
      "  KAFKA_CONTROLLER_LISTENER_NAMES: CONTROLLER",
      "  KAFKA_LISTENERS: PLAINTEXT://:9092,CONTROLLER://:9093",
      "  KAFKA_ADVERTISED_LISTENERS: PLAINTEXT://127.0.0.1:9092",
      "  KAFKA_LISTENER_SECURITY_PROTOCOL_MAP: PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT",
      "  KAFKA_OFFSETS_TOPIC_REPLICATION_FACTOR: 1",
      "  KAFKA_TRANSACTION_STATE_LOG_REPLICATION_FACTOR: 1",
      "  KAFKA_TRANSACTION_STATE_LOG_MIN_ISR: 1",
      '  KAFKA_AUTO_CREATE_TOPICS_ENABLE: "false"',
      "  KAFKA_LOG_DIRS: /var/lib/kafka/data",
      "healthcheck:",
      '  test: ["CMD", "/opt/kafka/bin/kafka-broker-api-versions.sh", "--bootstrap-server", "127.0.0.1:9092"]',
      "  interval: 5s",
      "  retries: 30",
    ],
    data: "/var/lib/kafka/data",
  },
  options: "{ url: config.broker }",
  consumers: false,
};
