import { createHash } from "node:crypto";
import type { Message } from "./wire.ts";

/** Four bytes that only the id decides. */
export const numberOf = (id: string, salt = ""): number => createHash("sha1").update(`${salt}${id}`).digest().readUInt32BE(0);

const hard = ["ä", "\\", "\n", "€", "😀"];

/** Everything of an event follows from its id, so that whoever gets it can tell whether it is as it was made. */
export const bodyOf = (id: string): string =>
  JSON.stringify({ id, text: hard.slice(0, numberOf(id) % 6).join(""), pad: "x".repeat(numberOf(id) % 300) });
export const typeOf = (id: string): string => `Happened${numberOf(id) % 5}`;
export const headersOf = (id: string): Readonly<Record<string, string>> => (numberOf(id) % 3 === 0 ? { of: id } : {});
export const isBytes = (id: string): boolean => numberOf(id) % 10 === 7;
export const contentTypeOf = (id: string): string => (isBytes(id) ? "application/octet-stream" : "application/json");
export const topicOf = (aggregate: string): string => `${aggregate.split("/")[0]!.toLowerCase()}.events`;

/** What is not as it was made, if anything. */
export function changedIn({ id, aggregate, topic, type, data, contentType, headers }: Message): string | undefined {
  if (data !== bodyOf(id)) return "payload";
  if (type !== typeOf(id)) return "type";
  if (contentType !== contentTypeOf(id)) return "content type";
  if (topic !== topicOf(aggregate)) return "topic";
  return JSON.stringify(headers) === JSON.stringify(headersOf(id)) ? undefined : "headers";
}
