import { createHash } from "node:crypto";
import { show, WaybillError } from "../../core/errors.ts";

/** Subjects that begin with $ are the server's own: a message to one of them could delete a stream. */
export function checkSubject(topic: string, code: "ROUTE_FAILED" | "INVALID_OPTION"): void {
  const isText = typeof topic === "string" && topic.isWellFormed();
  if (isText && !/[\0-\x20\x7f]|^\$|^_INBOX\./.test(topic) && topic.split(".").every(isLiteral)) return;
  throw new WaybillError(
    code,
    `${show(topic)} cannot be a NATS subject: words with dots between them, none empty or a wildcard, no space or half a character, no $ or _INBOX. in front`,
  );
}

const isLiteral = (token: string): boolean => token !== "" && token !== "*" && token !== ">";

/** `order.events` becomes order_events. Where another topic could get the same name, a part of the topic's hash is appended. */
export function streamName(topic: string): string {
  const safe = topic.replaceAll(".", "_");
  return /^[A-Za-z0-9-]+$/.test(topic.replaceAll(".", "")) && safe.length <= 200 ? safe : `${readable(topic)}_${hash(topic)}`;
}

/** The prefix of the names of a consumer's durables on a topic. A stream may hold many topics. */
export function durablePrefix(consumer: string, topic: string): string {
  return `${readable(consumer)}_${hash(`${consumer}\0${topic}`)}_`;
}

const readable = (name: string): string => name.replaceAll(/[^A-Za-z0-9-]+/g, "_").slice(0, 100);

const hash = (text: string): string => createHash("sha256").update(text).digest("hex").slice(0, 12);
