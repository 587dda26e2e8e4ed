/** The partition of a key, as Java's default partitioner chooses it: other producers that write to the topic agree with us. */
export const partitionOf = (key: Uint8Array, partitions: number, length = key.length): number =>
  (murmur2(key, length) & 0x7fffffff) % partitions;

const short = Buffer.alloc(128);

/** As `partitionOf` for the key in UTF-8. Most keys are short and ASCII, and need no buffer of their own. */
export function partitionOfText(key: string, partitions: number): number {
  const { length } = key;
  if (length > short.length) return partitionOf(Buffer.from(key), partitions);
  for (let i = 0; i < length; i++) {
    const unit = key.charCodeAt(i);
    if (unit > 0x7f) return partitionOf(Buffer.from(key), partitions);
    short[i] = unit;
  }
  return partitionOf(short, partitions, length);
}

/** MurmurHash2 with Kafka's seed, as a signed number of 32 bits. */
export function murmur2(data: Uint8Array, length = data.length): number {
  const m = 0x5bd1e995;
  const whole = length & ~3;
  let h = 0x9747b28c ^ length;
  for (let i = 0; i < whole; i += 4) {
    let k = data[i]! | (data[i + 1]! << 8) | (data[i + 2]! << 16) | (data[i + 3]! << 24);
    k = Math.imul(k, m);
    k = Math.imul(k ^ (k >>> 24), m);
    h = Math.imul(h, m) ^ k;
  }
  for (let i = length - 1; i >= whole; i--) h ^= data[i]! << (8 * (i - whole));
  if (length > whole) h = Math.imul(h, m);
  h = Math.imul(h ^ (h >>> 13), m);
  return h ^ (h >>> 15);
}
