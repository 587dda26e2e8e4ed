/** One message of a protocol, as the server sends it. */
export interface Frame {
  readonly bytes: Buffer;
  /** How many of its first bytes say what it is and how long: the rest is what it holds. */
  readonly head: number;
}

/** Cuts what a server sends into frames. The rest of an unfinished one waits for the next bytes. */
export type Framing = (chunk: Buffer) => readonly Frame[];

export const lineNames = ["postgres", "mariadb", "kafka", "rabbitmq", "nats", "redis"] as const;
export type LineName = (typeof lineNames)[number];

const crlf = Buffer.from("\r\n");

/** How long the frame at the buffer's start is, with its head's length; null while that cannot be seen. */
const measures: Readonly<Record<LineName, (bytes: Buffer) => readonly [length: number, head: number] | null>> = {
  postgres: (bytes) => (bytes.length < 5 ? null : [1 + bytes.readUInt32BE(1), 5]),
  mariadb: (bytes) => (bytes.length < 4 ? null : [4 + bytes.readUIntLE(0, 3), 4]),
  kafka: (bytes) => (bytes.length < 8 ? null : [4 + bytes.readUInt32BE(0), 8]),
  rabbitmq: (bytes) => (bytes.length < 7 ? null : [8 + bytes.readUInt32BE(3), 7]),
  nats: (bytes) => lineOf(bytes, (line) => (/^H?MSG /.test(line) ? Number(line.split(" ").at(-1)) : null)),
  redis: (bytes) => lineOf(bytes, (line) => (/^\$\d+$/.test(line) ? Number(line.slice(1)) : null)),
};

function lineOf(bytes: Buffer, following: (line: string) => number | null): readonly [number, number] | null {
  const end = bytes.indexOf(crlf);
  if (end === -1) return null;
  const body = following(bytes.toString("latin1", 0, end));
  return [end + 2 + (body === null ? 0 : body + 2), end + 2];
}

export function framingOf(name: LineName): Framing {
  const measure = measures[name];
  let rest: Buffer = Buffer.alloc(0);
  return (chunk) => {
    const frames: Frame[] = [];
    rest = rest.length === 0 ? chunk : Buffer.concat([rest, chunk]);
    for (;;) {
      const [length, head] = measure(rest) ?? [Infinity, 0];
      if (rest.length < length) return frames;
      frames.push({ bytes: rest.subarray(0, length), head: Math.min(head, length) });
      rest = rest.subarray(length);
    }
  };
}
