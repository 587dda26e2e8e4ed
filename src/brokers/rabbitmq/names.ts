import { show, WaybillError } from "../../core/errors.ts";

/** AMQP writes the length of names, routing keys and text properties of a message with one byte. */
export const shortBytes = 255;

/** A topic is both a routing key and a binding key. In a binding key, the words * and # would also match other topics. */
export function checkTopic(topic: string, code: "ROUTE_FAILED" | "INVALID_OPTION"): void {
  const fits =
    typeof topic === "string" &&
    topic !== "" &&
    Buffer.byteLength(topic) <= shortBytes &&
    !/[\0-\x1f\x7f]/.test(topic) &&
    topic.isWellFormed();
  if (fits && topic.split(".").every((word) => word !== "*" && word !== "#")) return;
  throw new WaybillError(
    code,
    `${show(topic)} cannot be a routing key: 1 to ${shortBytes} bytes, without control characters or half ones, and no word of it may be * or #`,
  );
}

/** `inventory.order.events`: the consumer, a dot, the topic. A dot in the consumer's name is written %2E, so that no two share a queue. */
export function queueName(consumer: string, topic: string): string {
  const fits = typeof consumer === "string" && consumer !== "" && !/[\0-\x1f\x7f]/.test(consumer);
  const name = `${String(consumer).replaceAll("%", "%25").replaceAll(".", "%2E")}.${topic}`;
  if (fits && Buffer.byteLength(name) <= shortBytes) return name;
  throw new WaybillError(
    "INVALID_OPTION",
    `consumer ${show(consumer)} cannot have a queue for ${show(topic)}: both names together take 1 to ${shortBytes} bytes, without control characters`,
  );
}
