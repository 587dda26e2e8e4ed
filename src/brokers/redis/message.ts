import type { Outgoing } from "../../contracts/sink.ts";
import { fromAttributes, toAttributes } from "../../core/cloudevents.ts";
import type { Envelope } from "../../core/event.ts";
import type { Argument, Reply } from "./driver.ts";

/** The fields of a stream entry, names and values in turn: `ce_*`, `content-type`, `h_*` for the user's headers, and `data`. */
export function toFields({ envelope, source }: Outgoing): readonly Argument[] {
  const fields: Argument[] = [];
  for (const [name, value] of Object.entries(toAttributes(envelope, source))) {
    fields.push(name === "datacontenttype" ? "content-type" : `ce_${name}`, value);
  }
  for (const [name, value] of Object.entries(envelope.headers)) fields.push(`h_${name}`, value);
  const { buffer, byteOffset, byteLength } = envelope.data;
  fields.push("data", Buffer.from(buffer, byteOffset, byteLength));
  return fields;
}

export function bytesIn(fields: readonly Argument[]): number {
  let bytes = 0;
  for (const field of fields) bytes += typeof field === "string" ? Buffer.byteLength(field) : field.byteLength;
  return bytes;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** The way back; null when the entry is no event. */
export function toEnvelope(fields: readonly Reply[]): Envelope | null {
  const attributes = new Map<string, string>();
  const headers = new Map<string, string>();
  let data: Uint8Array | null = null;
  try {
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const name = utf8.decode(fields[i] as Buffer);
      const value = fields[i + 1] as Buffer;
      const attribute = name === "content-type" ? "datacontenttype" : name.startsWith("ce_") ? name.slice(3) : null;
      // A field that is there twice: nobody can say which is meant.
      if (attribute !== null && attributes.has(attribute)) return null;
      if (name === "data" && data !== null) return null;
      // A copy: the client's bytes are a view into all that came with them, which a delivery that waits would keep in memory.
      if (name === "data") data = new Uint8Array(value);
      else if (attribute !== null) attributes.set(attribute, utf8.decode(value));
      else if (name.startsWith("h_")) headers.set(name.slice(2), utf8.decode(value));
    }
  } catch {
    return null;
  }
  // Not by assignment: a field may be named __proto__.
  return fromAttributes(Object.fromEntries(attributes), Object.fromEntries(headers), data ?? new Uint8Array(0));
}

/** What a name or a value takes in memory besides its content: an entry may consist of empty ones. */
export const fieldBytes = 64;
/** An entry of more fields is not read. It is no event of an outbox: their headers are bounded, and make fewer. */
export const maxFields = 32_768;

export function bytesOf(fields: readonly Reply[]): number {
  let bytes = fields.length * fieldBytes;
  for (const field of fields) bytes += (field as Buffer).byteLength;
  return bytes;
}

/** The entry as the server writes it: an array of strings, in its protocol. */
export function rawOf(fields: readonly Reply[]): Uint8Array {
  const parts = fields.flatMap((field) => {
    const bytes = field as Buffer;
    return [Buffer.from(`$${bytes.byteLength}\r\n`), bytes, Buffer.from("\r\n")];
  });
  return Buffer.concat([Buffer.from(`*${fields.length}\r\n`), ...parts]);
}
