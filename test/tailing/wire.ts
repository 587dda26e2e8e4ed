import type { Socket } from "node:net";

/** A message as it travels to the broker of the play. */
export interface Message {
  readonly topic: string;
  readonly id: string;
  readonly aggregate: string;
  readonly seq: number;
  readonly type: string;
  readonly contentType: string;
  readonly headers: Readonly<Record<string, string>>;
  /** The payload, whose bytes are UTF-8. */
  readonly data: string;
}

/** What a relay asks, under a number of its own. */
export type Ask = { readonly n: number } & (
  { readonly hello: string } | { readonly publish: readonly Message[] } | { readonly probe: string }
);

/** What became of each message: stored, refused for what it is, refused for its topic, or left out behind one that was not stored. */
export type Fate = "stored" | "event" | "topic" | "skipped";

export interface Answer {
  readonly n: number;
  readonly fates?: readonly Fate[];
  readonly well?: boolean;
}

/** JSON behind four bytes of its length. False: the socket is gone. */
export function write(socket: Socket, value: Ask | Answer): boolean {
  if (!socket.writable) return false;
  const body = Buffer.from(JSON.stringify(value));
  const head = Buffer.alloc(4);
  head.writeUInt32BE(body.length);
  socket.cork();
  socket.write(head);
  socket.write(body);
  socket.uncork();
  return true;
}

export function read<T extends Ask | Answer>(socket: Socket, take: (value: T) => void): void {
  let parts: Buffer[] = [];
  let size = 0;
  socket.on("data", (chunk: Buffer) => {
    parts.push(chunk);
    size += chunk.length;
    while (size >= 4) {
      if (parts.length > 1) parts = [Buffer.concat(parts)];
      const all = parts[0]!;
      const end = 4 + all.readUInt32BE(0);
      if (size < end) return;
      parts = [all.subarray(end)];
      size -= end;
      take(JSON.parse(all.toString("utf8", 4, end)) as T);
    }
  });
  socket.on("error", () => undefined); // it closes
}
