/** Which characters a text may consist of, by their codes. */
export type Charset = Uint8Array;

export const charset = (has: (code: number) => boolean): Charset => Uint8Array.from({ length: 128 }, (_, code) => (has(code) ? 1 : 0));

export const ascii = charset(() => true);

/** From this length on, the native way of writing a text is faster than a loop. */
const longText = 256;
const [zero, cr, lf] = [48, 13, 10];

/**
 * The bytes of one write to a socket. Each message of a batch is written straight into it: a string or a buffer for every field would be a
 * third of a sink's work, and most of its garbage.
 */
export class ByteWriter {
  bytes: Buffer;
  /** Where the next byte goes. Setting it back forgets what was written since. */
  at = 0;

  constructor(size: number) {
    this.bytes = Buffer.allocUnsafe(size);
  }

  /** Makes sure that so many more bytes fit. */
  room(more: number): void {
    const needed = this.at + more;
    if (needed <= this.bytes.length) return;
    const larger = Buffer.allocUnsafe(Math.max(needed, 2 * this.bytes.length));
    this.bytes.copy(larger, 0, 0, this.at);
    this.bytes = larger;
  }

  /** Writes the text if it has only these characters; otherwise writes nothing and returns false. */
  only(allowed: Charset, text: string): boolean {
    const { length } = text;
    this.room(length);
    const { bytes } = this;
    let { at } = this;
    for (let i = 0; i < length; i++) {
      const code = text.charCodeAt(i);
      if (allowed[code] !== 1) return false;
      bytes[at++] = code;
    }
    this.at = at;
    return true;
  }

  /** As UTF-8. */
  text(text: string): void {
    if (text.length < longText && this.only(ascii, text)) return;
    this.room(3 * text.length);
    this.at += this.bytes.write(text, this.at);
  }

  data(data: Uint8Array): void {
    this.room(data.byteLength);
    this.bytes.set(data, this.at);
    this.at += data.byteLength;
  }

  /** A non-negative integer, in decimal digits. */
  decimal(value: number): void {
    if (value < 10) {
      this.room(1);
      this.bytes[this.at++] = value + zero;
      return;
    }
    const digits = digitsOf(value);
    this.room(digits);
    let rest = value;
    for (let at = this.at + digits - 1; at >= this.at; at--) {
      const next = Math.floor(rest / 10);
      this.bytes[at] = rest - 10 * next + zero;
      rest = next;
    }
    this.at += digits;
  }

  /** An unsigned integer in `width` bytes, big-endian. */
  uint(value: number, width: number): void {
    this.room(width);
    let rest = value;
    for (let at = this.at + width - 1; at >= this.at; at--) {
      const next = Math.floor(rest / 256);
      this.bytes[at] = rest - 256 * next;
      rest = next;
    }
    this.at += width;
  }

  /** Inserts an ASCII text before what was written from `from` on. */
  insert(from: number, text: string): void {
    this.room(text.length);
    const end = this.at;
    this.bytes.copyWithin(from + text.length, from, end);
    this.at = from;
    this.only(ascii, text);
    this.at = end + text.length;
  }

  crlf(): void {
    this.room(2);
    this.bytes[this.at++] = cr;
    this.bytes[this.at++] = lf;
  }

  written(): Buffer {
    return this.bytes.subarray(0, this.at);
  }
}

function digitsOf(value: number): number {
  let digits = 1;
  for (let rest = value; rest >= 10; rest = Math.floor(rest / 10)) digits += 1;
  return digits;
}
