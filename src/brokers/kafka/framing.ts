/** A size that no answer to our requests has. */
export class WrongSize extends Error {}

/** Of an answer's size, and of the number of the request behind it. */
const [sizeBytes, numberBytes] = [4, 4];

/**
 * Hands on whole answers only, with their sizes. `most` is asked for each: how many bytes it may have. The client believes any size: one of
 * less than 4 ends the process, and one of 2 GiB is waited for, and kept in memory.
 */
export function createFraming(most: () => number, handOn: (answer: Buffer) => void): (chunk: Buffer) => void {
  let parts: Buffer[] = [];
  let bytes = 0;
  let size = 0;
  return (chunk) => {
    parts.push(chunk);
    bytes += chunk.length;
    while (bytes >= sizeBytes) {
      if (size === 0) {
        if (parts[0]!.length < sizeBytes) parts = [Buffer.concat(parts)];
        const said = parts[0]!.readInt32BE(0);
        if (said < numberBytes) throw new WrongSize(`announced an answer of ${said} bytes`);
        if (said > most()) throw new WrongSize(`announced an answer of ${said} bytes, more than it was asked for`);
        size = sizeBytes + said;
      }
      if (bytes < size) return;
      const all = parts.length === 1 ? parts[0]! : Buffer.concat(parts);
      const answer = all.subarray(0, size);
      parts = all.length > size ? [all.subarray(size)] : [];
      bytes -= size;
      size = 0;
      handOn(answer);
    }
  };
}
