/** As PostgreSQL writes a WAL position: two halves in hexadecimal digits. */
export const lsnText = (bytes: Buffer, at: number): string =>
  `${bytes.readUInt32BE(at).toString(16).toUpperCase()}/${bytes
    .readUInt32BE(at + 4)
    .toString(16)
    .toUpperCase()}`;

export function lsnOf(text: string): bigint {
  const [, high, low] = /^([0-9A-Fa-f]{1,8})\/([0-9A-Fa-f]{1,8})$/.exec(text) ?? [];
  if (high === undefined || low === undefined) throw new TypeError(`${JSON.stringify(text)} is not a WAL position`);
  return (BigInt(`0x${high}`) << 32n) | BigInt(`0x${low}`);
}
