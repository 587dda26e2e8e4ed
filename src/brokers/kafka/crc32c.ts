const polynomial = 0x82f63b78;

const first = Int32Array.from({ length: 256 }, (_, byte) => {
  let value = byte;
  for (let bit = 0; bit < 8; bit++) value = value & 1 ? (value >>> 1) ^ polynomial : value >>> 1;
  return value;
});
const behind = (before: Int32Array): Int32Array => before.map((value) => first[value & 0xff]! ^ (value >>> 8));

/** The nth table holds a byte's effect on the checksum when n more bytes follow it ("slicing by 16"). */
const tables: Int32Array[] = [first];
while (tables.length < 16) tables.push(behind(tables.at(-1)!));
const [t0, t1, t2, t3, t4, t5, t6, t7, t8, t9, t10, t11, t12, t13, t14, t15] = tables as [
  ...[Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array],
  ...[Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array, Int32Array],
];

/** A batch's checksum, of the bytes from `from` on. It reads every byte published or received, in a third of the plain loop's time. */
export function crc32c(bytes: Uint8Array, from = 0): number {
  const view = new DataView(bytes.buffer, bytes.byteOffset, bytes.byteLength);
  const { length } = bytes;
  let value = -1;
  let at = from;
  for (; at + 16 <= length; at += 16) {
    const a = value ^ view.getInt32(at, true);
    const b = view.getInt32(at + 4, true);
    const c = view.getInt32(at + 8, true);
    const d = view.getInt32(at + 12, true);
    value =
      t15[a & 0xff]! ^ t14[(a >>> 8) & 0xff]! ^ t13[(a >>> 16) & 0xff]! ^ t12[a >>> 24]! ^
      t11[b & 0xff]! ^ t10[(b >>> 8) & 0xff]! ^ t9[(b >>> 16) & 0xff]! ^ t8[b >>> 24]! ^
      t7[c & 0xff]! ^ t6[(c >>> 8) & 0xff]! ^ t5[(c >>> 16) & 0xff]! ^ t4[c >>> 24]! ^
      t3[d & 0xff]! ^ t2[(d >>> 8) & 0xff]! ^ t1[(d >>> 16) & 0xff]! ^ t0[d >>> 24]!; // prettier-ignore
  }
  for (; at < length; at++) value = t0[(value ^ bytes[at]!) & 0xff]! ^ (value >>> 8);
  return (value ^ -1) >>> 0;
}
