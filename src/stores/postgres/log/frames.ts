/** Of a message's type, and of its length, which counts itself. */
const [typeBytes, lengthBytes] = [1, 4];
const headBytes = typeBytes + lengthBytes;
/** PostgreSQL itself makes no larger ones. */
const maxMessage = 2 ** 30;

/** What is kept of a message that is too large. */
const keptBytes = 64 * 1024;

/** One message without its head. It lies in `bytes`, which belongs to whoever keeps a part of it. `cut`: only its beginning is there. */
export type TakeMessage = (type: number, bytes: Buffer, from: number, to: number, cut: boolean) => void;

export interface Frames {
  /** Hands on each message that is whole. Throws a RangeError at a length that no message has. */
  take(chunk: Buffer): void;
  /** How many bytes the message takes that has begun to arrive, or 0. */
  arriving(): number;
}

/**
 * Most messages lie in one chunk and are handed on where they are. The chunks of a large one are joined once, when it is whole. Of one with more
 * than `most` bytes only the beginning is kept.
 */
export function createFrames(handOn: TakeMessage, most = Infinity): Frames {
  let parts: Buffer[] = [];
  let have = 0;
  let kept = 0;
  let need = headBytes;

  const sizeAt = (bytes: Buffer, at: number): number => {
    const length = bytes.readUInt32BE(at + typeBytes);
    if (length < lengthBytes || length > maxMessage) throw new RangeError(`a message of ${length} bytes`);
    return typeBytes + length;
  };
  const keep = (piece: Buffer): void => {
    have += piece.length;
    const some = need > most ? piece.subarray(0, Math.max(0, keptBytes - kept)) : piece;
    if (some.length === 0) return;
    parts.push(some);
    kept += some.length;
  };
  /** Takes from the chunk what the begun message lacks. Answers how much of the chunk is used up. */
  const finish = (chunk: Buffer): number => {
    let at = 0;
    for (;;) {
      const piece = chunk.subarray(at, at + need - have);
      keep(piece);
      at += piece.length;
      if (have < need) return at;
      if (have === headBytes && need === headBytes) {
        parts = [Buffer.concat(parts)];
        need = sizeAt(parts[0]!, 0);
        if (need > have) continue;
      }
      const cut = kept < have;
      const whole = Buffer.concat(parts, kept);
      parts = [];
      have = kept = 0;
      need = headBytes;
      handOn(whole[0]!, whole, headBytes, whole.length, cut);
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
        handOn(chunk[at]!, chunk, at + headBytes, end, false);
        at = end;
      }
      if (at === chunk.length) return;
      keep(chunk.subarray(at));
    },
  };
}
