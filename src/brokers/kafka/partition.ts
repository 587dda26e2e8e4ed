/** The partition of a key among so many, as Java's default partitioner has it: others that write to the topic agree with us. */
export const partitionOf = (key: Uint8Array, partitions: number): number => (murmur2(key) & 0x7fffffff) % partitions;

/** MurmurHash2 with Kafka's seed, as a signed number of 32 bits. */
export function murmur2(data: Uint8Array): number {
  const m = 0x5bd1e995;
  const { length } = data;
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
