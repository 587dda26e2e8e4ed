import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { setImmediate as turn } from "node:timers/promises";
import { seededRandom } from "../../src/core/random.ts";

/** Hands bytes on in pieces of 1 to `most`, a turn of the event loop apart, so that a reader in this process gets them in these pieces. */
export async function startCuttingProxy(target: number, seed: number, most: number): Promise<{ readonly port: number } & AsyncDisposable> {
  const random = seededRandom(seed);
  const sockets = new Set<Socket>();
  const pass = async (from: Socket, to: Socket): Promise<void> => {
    for await (const chunk of from as AsyncIterable<Buffer>) {
      for (let at = 0; at < chunk.length;) {
        const length = 1 + Math.floor(random.next() * most);
        to.write(chunk.subarray(at, (at += length)));
        await turn();
      }
    }
    to.end();
  };
  const server = createServer((near) => {
    const far = connect(target, "127.0.0.1");
    for (const socket of [near, far]) {
      sockets.add(socket.setNoDelay(true));
      socket.on("close", () => sockets.delete(socket));
    }
    const end = (): void => void [near, far].map((socket) => socket.destroy());
    for (const [from, to] of [[near, far] as const, [far, near] as const]) pass(from, to).catch(end);
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
  return {
    port: (server.address() as AddressInfo).port,
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      server.close();
      await once(server, "close");
    },
  };
}
