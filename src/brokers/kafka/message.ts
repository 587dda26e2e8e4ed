import { fromAttributes } from "../../core/cloudevents.ts";
import type { Envelope } from "../../core/event.ts";

const prefix = "ce_";
const type = "content-type";

/** The header that an attribute becomes: `ce_*`, or `content-type`. */
export const attributeHeader = (attribute: string): string => (attribute === "datacontenttype" ? type : prefix + attribute);

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** An empty header takes two bytes, almost none when compressed, and a hundred times as many in memory. */
export const mostHeaders = 10_000;

export interface StoredRecord {
  readonly value: Buffer | null;
  /** Null when there are more than `mostHeaders`. */
  readonly headers: Iterable<readonly [Buffer | null, Buffer | null]> | null;
  /** All of the record behind its length, as Kafka stores it. */
  readonly raw: Buffer;
}

/** The event in a record, or the reason why it is none. */
export function envelopeOf({ value, headers }: StoredRecord): Envelope | string {
  if (headers === null) return `it has more than ${mostHeaders} headers`;
  const attributes: [string, string][] = [];
  const others: [string, string][] = [];
  try {
    for (const [name, text] of headers) {
      const header = utf8.decode(name ?? Buffer.alloc(0));
      const lower = header.toLowerCase();
      if (lower === type) attributes.push(["datacontenttype", utf8.decode(text ?? Buffer.alloc(0))]);
      else if (lower.startsWith(prefix)) attributes.push([lower.slice(prefix.length), utf8.decode(text ?? Buffer.alloc(0))]);
      else others.push([header, utf8.decode(text ?? Buffer.alloc(0))]);
    }
  } catch {
    return "one of its headers is not UTF-8";
  }
  // The value is copied: it is a view into all bytes that came with it. No header is assigned by name: one may be named __proto__.
  const event = fromAttributes(Object.fromEntries(attributes), Object.fromEntries(others), new Uint8Array(value ?? []));
  return event ?? "it has no ce_id, or no ce_type, and is no event";
}
