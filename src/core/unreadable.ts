import { createHash } from "node:crypto";
import type { Envelope } from "./event.ts";

/** The envelope of a message that is no event: its id is made from the message's place, and its other fields mean nothing. */
export function unreadableEnvelope(id: string): Envelope {
  return {
    id,
    seq: 0n,
    aggregateType: "",
    // An aggregate of its own: an unreadable message must not hold an aggregate of readable ones.
    aggregateId: id,
    type: "",
    eventVersion: 1,
    data: new Uint8Array(),
    contentType: "application/octet-stream",
    headers: {},
    idempotencyKey: null,
    createdAt: new Date(0),
  };
}

/** For a broker whose messages have no stable position: the same bytes are the same message. */
export function idOfBytes(...parts: readonly Uint8Array[]): string {
  const hash = createHash("sha256");
  for (const part of parts) hash.update(part);
  return `unreadable:${hash.digest("hex")}`;
}

export const isIdOfBytes = (id: string): boolean => /^unreadable:[0-9a-f]{64}$/.test(id);
