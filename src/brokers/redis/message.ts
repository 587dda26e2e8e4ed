import type { Outgoing } from "../../contracts/sink.ts";
import { eachAttribute, fromAttributes } from "../../core/cloudevents.ts";
import type { Envelope } from "../../core/event.ts";
import type { ByteWriter } from "../kit/bytes.ts";
import { writeData, writeText } from "./protocol.ts";

/** How many names and values of an entry were written, and how many bytes they have. */
interface Fields {
  readonly count: number;
  readonly bytes: number;
}

/** The fields of a stream entry, names and values in turn: `ce_*`, `content-type`, `h_*` for the user's headers, and `data`. */
export function writeFields(writer: ByteWriter, { envelope, source }: Outgoing): Fields {
  const { data, headers } = envelope;
  let count = 2;
  let bytes = "data".length + data.byteLength;
  eachAttribute(envelope, source, (name, value) => {
    count += 2;
    bytes += writeText(writer, fieldOf(name)) + writeText(writer, value);
  });
  for (const name of Object.keys(headers)) {
    count += 2;
    bytes += writeText(writer, `h_${name}`) + writeText(writer, headers[name]!);
  }
  writeText(writer, "data");
  writeData(writer, data);
  return { count, bytes };
}

const fields = new Map<string, string>();
/** An attribute's field name, cached. */
function fieldOf(name: string): string {
  let field = fields.get(name);
  if (field === undefined) fields.set(name, (field = name === "datacontenttype" ? "content-type" : `ce_${name}`));
  return field;
}

const utf8 = new TextDecoder("utf-8", { fatal: true, ignoreBOM: true });

/** Decodes an entry; null when it is not an event. */
export function toEnvelope(fields: readonly Buffer[]): Envelope | null {
  const attributes = new Map<string, string>();
  const headers = new Map<string, string>();
  let data: Uint8Array | null = null;
  try {
    for (let i = 0; i + 1 < fields.length; i += 2) {
      const name = utf8.decode(fields[i]);
      const value = fields[i + 1]!;
      const attribute = name === "content-type" ? "datacontenttype" : name.startsWith("ce_") ? name.slice(3) : null;
      // A field that is there twice is ambiguous.
      if (attribute !== null && attributes.has(attribute)) return null;
      if (name === "data" && data !== null) return null;
      // A copy: the client's bytes are a view into all that came with them, and a waiting delivery would keep all of that in memory.
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

/** Memory that a name or a value takes besides its content. It counts, since an entry may consist of empty ones. */
export const fieldBytes = 64;
/** An entry with more fields is not read. It is no event of an outbox: the limit on headers keeps events below this number. */
export const maxFields = 32_768;

export function bytesOf(fields: readonly Buffer[]): number {
  let bytes = fields.length * fieldBytes;
  for (const field of fields) bytes += field.byteLength;
  return bytes;
}

/** The entry as the server writes it: an array of strings, in its protocol. */
export function rawOf(fields: readonly Buffer[]): Uint8Array {
  const parts = fields.flatMap((bytes) => [Buffer.from(`$${bytes.byteLength}\r\n`), bytes, Buffer.from("\r\n")]);
  return Buffer.concat([Buffer.from(`*${fields.length}\r\n`), ...parts]);
}
