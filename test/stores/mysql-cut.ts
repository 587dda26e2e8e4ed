import { connect, createServer, type Socket } from "node:net";

interface Cut extends AsyncDisposable {
  readonly port: number;
  times(): number;
  mend(): void;
}

/** Stands before the server, and ends a connection when this statement comes by; or only keeps silent from there on. */
export async function cutBefore(statement: string, port: number, reaches: boolean | "silence"): Promise<Cut> {
  const sockets = new Set<Socket>();
  let times = 0;
  let mended = false;
  const front = createServer((client) => {
    const back = connect(port, "127.0.0.1");
    for (const socket of [client, back]) {
      sockets.add(socket);
      socket.on("error", () => undefined);
      socket.on("close", () => (client.destroy(), back.destroy()));
    }
    back.pipe(client);
    client.on("data", (data) => {
      if (mended || !data.includes(statement)) return void back.write(data);
      times++;
      back.unpipe(client);
      if (reaches === "silence") return;
      if (!reaches) return void client.destroy();
      back.once("data", () => client.destroy());
      back.resume();
      back.write(data);
    });
  });
  await new Promise<void>((resolve) => front.listen(0, "127.0.0.1", resolve));
  const address = front.address() as { port: number };
  return {
    port: address.port,
    times: () => times,
    mend: () => void (mended = true),
    async [Symbol.asyncDispose]() {
      for (const socket of sockets) socket.destroy();
      await new Promise((resolve) => front.close(resolve));
    },
  };
}
