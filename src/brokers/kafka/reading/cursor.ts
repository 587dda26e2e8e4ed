/** Reads Kafka's numbers and bytes one after the other. Throws a RangeError beyond the end. */
export class Cursor {
  readonly #bytes: Buffer;
  #at = 0;

  constructor(bytes: Buffer) {
    this.#bytes = bytes;
  }

  get at(): number {
    return this.#at;
  }

  get left(): number {
    return this.#bytes.length - this.#at;
  }

  int16(): number {
    return this.#bytes.readInt16BE(this.#past(2));
  }

  int32(): number {
    return this.#bytes.readInt32BE(this.#past(4));
  }

  int64(): bigint {
    return this.#bytes.readBigInt64BE(this.#past(8));
  }

  /** An unsigned number of so many bytes, little-endian. */
  little(width: number): number {
    return this.#bytes.readUIntLE(this.#past(width), width);
  }

  take(length: number): Buffer {
    const from = this.#past(length);
    return this.#bytes.subarray(from, this.#at);
  }

  unsigned(): number {
    let value = 0;
    for (let factor = 1; factor <= 2 ** 28; factor *= 128) {
      const byte = this.#bytes[this.#past(1)]!;
      value += (byte & 127) * factor;
      if (byte < 128) return value;
    }
    throw new RangeError("a number of too many bytes");
  }

  /** With a sign, zigzag. */
  varint(): number {
    const value = this.unsigned();
    return value % 2 === 0 ? value / 2 : -(value + 1) / 2;
  }

  /** Skips a varint that may have more than 32 bits. */
  varlong(): void {
    for (let n = 0; n < 10; n++) if (this.#bytes[this.#past(1)]! < 128) return;
    throw new RangeError("a number of too many bytes");
  }

  /** Bytes behind their length; null for a negative one. */
  sized(): Buffer | null {
    const length = this.varint();
    return length < 0 ? null : this.take(length);
  }

  /** Skips what `sized` would read. */
  skip(): void {
    const length = this.varint();
    if (length > 0) this.#past(length);
  }

  /** A compact array: its count is stored plus one, and 0 means no array at all. */
  list<T>(item: () => T): T[] {
    const count = this.unsigned() - 1;
    if (count > this.left) throw new RangeError("more items than bytes");
    const items: T[] = []; // an array of `count` places would cost memory before the items are there
    while (items.length < count) items.push(item());
    return items;
  }

  /** Moves on by so many bytes, and returns the old position. */
  #past(length: number): number {
    const from = this.#at;
    if (length < 0 || from + length > this.#bytes.length) throw new RangeError("beyond the end");
    this.#at = from + length;
    return from;
  }
}
