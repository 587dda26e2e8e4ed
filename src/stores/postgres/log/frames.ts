/** Of a message's type, and of its length, which counts itself. */
const [typeBytes, lengthBytes] = [1, 4];
const headBytes = typeBytes + lengthBytes;
/** PostgreSQL itself makes no larger ones. */
const maxMessage = 2 ** 30;

/** One message without its head. It lies in `bytes`, which belongs to whoever keeps a part of it. */
export type TakeMessage = (type: number, bytes: Buffer, from: number, to: number) => void;

export interface Frames {
  /** Hands on each message that is whole. Throws a RangeError at a length that no message has. */
  take(chunk: Buffer): void;
  /** How many bytes the message takes that has begun to arrive, or 0. */
  arriving(): number;
}

/** Most messages lie in one chunk and are handed on where they are. The chunks of a large one are joined once, when it is whole. */
export function createFrames(handOn: TakeMessage): Frames {
  let parts: Buffer[] = [];
  let have = 0;
  let need = headBytes;

  const sizeAt = (bytes: Buffer, at: number): number => {
    const length = bytes.readUInt32BE(at + typeBytes);
    if (length < lengthBytes || length > maxMessage) throw new RangeError(`a message of ${length} bytes`);
    return typeBytes + length;
  };
  /** Takes from the chunk what the begun message lacks. Answers how much of the chunk is used up. */
  const finish = (chunk: Buffer): number => {
    let at = 0;
    for (;;) {
      const piece = chunk.subarray(at, at + need - have);
      if (piece.length > 0) parts.push(piece);
      have += piece.length;
      at += piece.length;
      if (have < need) return at;
      if (have === headBytes && need === headBytes) {
        parts = [Buffer.concat(parts)];
        need = sizeAt(parts[0]!, 0);
        if (need > have) continue;
      }
      const whole = Buffer.concat(parts, have);
      parts = [];
      have = 0;
      need = headBytes;
      handOn(whole[0]!, whole, headBytes, whole.length);
      return at;
    }
  };
  return {
    arriving: () => (need > headBytes ? need : have),
    take(chunk) {
      let at = have > 0 ? finish(chunk) : 0;
      while (chunk.length - at >= headBytes) {
        const end = at + sizeAt(chunk, at);
        if (end > chunk.length) {
          need = end - at;
          break;
        }
        handOn(chunk[at]!, chunk, at + headBytes, end);
        at = end;
      }
      if (at === chunk.length) return;
      parts.push(chunk.subarray(at));
      have = chunk.length - at;
    },
  };
}
