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
  const attributes: [string, string][] = [];
  const headers: [string, string][] = [];
  let data = new Uint8Array(0);
  try {
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const name = utf8.decode(fields[i] as Buffer);
      const value = fields[i + 1] as Buffer;
      // A copy: the client's bytes are a view into all that came with them, which a delivery that waits would keep in memory.
      if (name === "data") data = new Uint8Array(value);
      else if (name === "content-type") attributes.push(["datacontenttype", utf8.decode(value)]);
      else if (name.startsWith("ce_")) attributes.push([name.slice(3), utf8.decode(value)]);
      else if (name.startsWith("h_")) headers.push([name.slice(2), utf8.decode(value)]);
    }
  } catch {
    return null;
  }
  // Not by assignment: a field may be named __proto__.
  return fromAttributes(Object.fromEntries(attributes), Object.fromEntries(headers), data);
}
