import { ByteWriter } from "../../kit/bytes.ts";

/** Writes the parts of Kafka's records: signed varints, and texts after their length. */
export class RecordWriter extends ByteWriter {
  /** Of a number that is not negative. */
  varint(value: number): void {
    this.room(longestVarint);
    this.at = writeVarint(this.bytes, this.at, value);
  }

  /** So few bytes that a call out of JavaScript costs more than a loop. */
  few(bytes: Uint8Array): void {
    this.room(bytes.length);
    const own = this.bytes;
    let { at } = this;
    for (let i = 0; i < bytes.length; i++) own[at++] = bytes[i]!;
    this.at = at;
  }

  /** A text in UTF-8, behind its length. */
  sized(text: string): void {
    if (typeof text !== "string") throw new TypeError(`a header must be a text, not ${typeof text}`);
    const { length } = text;
    this.room(longestVarint + length * 3);
    if (length >= shortText) return this.#long(text);
    const { bytes } = this;
    let { at } = this;
    bytes[at++] = length * 2;
    for (let i = 0; i < length; i++) {
      const unit = text.charCodeAt(i);
      if (unit > lastAscii) return this.#long(text);
      bytes[at++] = unit;
    }
    this.at = at;
  }

  #long(text: string): void {
    this.varint(Buffer.byteLength(text));
    this.at += this.bytes.write(text, this.at);
  }
}

/** One more than the longest text whose length takes one byte. */
const shortText = 64;
const lastAscii = 0x7f;
const longestVarint = 5;

export function varintBytes(value: number): number {
  let bytes = 1;
  for (let left = value * 2; left >= 128; left /= 128) bytes += 1;
  return bytes;
}

/** Returns the position after the varint. */
export function writeVarint(bytes: Uint8Array, from: number, value: number): number {
  let at = from;
  let left = value * 2;
  for (; left >= 128; left >>>= 7) bytes[at++] = (left & 127) | 128;
  bytes[at++] = left;
  return at;
}
