import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";

/** What is sent in place of an answer: made of the right one, whose correlation id stands at 4. */
type Forge = (answer: Buffer) => Buffer | Iterable<Buffer>;

export interface KafkaForger extends AsyncDisposable {
  readonly port: number;
  /** From now on, in place of all answers to requests of this kind; null for the right ones. */
  forge(api: number, make: Forge | null): void;
  /** How many answers were forged. */
  readonly forged: number;
  /** The most bytes of one connection that the client has taken. */
  readonly taken: number;
}

/** Stands between Kafka's clients and a broker, and forges what the broker answers. */
export async function startKafkaForger(target: number): Promise<KafkaForger> {
  const forges = new Map<number, Forge>();
  const sockets = new Set<Socket>();
  let forged = 0;
  let taken = 0;
  const server = createServer((near) => {
    const far = connect(target, "127.0.0.1");
    const asked = new Map<number, number>();
    const end = (): void => {
      taken = Math.max(taken, near.bytesWritten - near.writableLength);
      near.destroy();
      far.destroy();
    };
    for (const socket of [near, far]) {
      sockets.add(socket.setNoDelay(true));
      socket.on("error", end).on("close", () => (sockets.delete(socket), end()));
    }
    void framed(near, (frame) => {
      asked.set(frame.readInt32BE(8), frame.readInt16BE(4));
      far.write(frame);
    });
    void framed(far, async (frame) => {
      const make = forges.get(asked.get(frame.readInt32BE(4)) ?? -1);
      if (make === undefined) return void near.write(frame);
      forged += 1;
      const instead = make(frame);
      for (const part of Buffer.isBuffer(instead) ? [instead] : instead) {
        if (near.destroyed) return;
        if (!near.write(part)) await Promise.race([once(near, "drain"), once(near, "close")]);
      }
    });
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    forge: (api, make) => void (make === null ? forges.delete(api) : forges.set(api, make)),
    get forged() {
      return forged;
    },
    get taken() {
      return taken;
    },
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}

/** Each frame with its size, one after the other. */
async function framed(from: Socket, take: (frame: Buffer) => void | Promise<void>): Promise<void> {
  let bytes = Buffer.alloc(0);
  try {
    for await (const chunk of from as AsyncIterable<Buffer>) {
      bytes = Buffer.concat([bytes, chunk]);
      while (bytes.length >= 4 && bytes.length >= 4 + bytes.readInt32BE(0)) {
        const size = 4 + bytes.readInt32BE(0);
        await take(bytes.subarray(0, size));
        bytes = bytes.subarray(size);
      }
    }
  } catch {
    from.destroy();
  }
}
