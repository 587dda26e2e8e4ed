import { createServer, connect, type Socket } from "node:net";

/** A wire between a client and its server that can be cut in the midst of a COMMIT. */
export interface Wire {
  readonly url: string;
  /** Cuts the next COMMIT: before the server has it, or after it has answered and before the client hears of it. */
  cut(when: "before" | "after"): void;
  /** How many COMMITs it has seen since it was cut. */
  readonly commits: () => number;
  close(): Promise<void>;
}

export async function wireTo(url: string): Promise<Wire> {
  const target = new URL(url);
  const open = new Set<Socket>();
  let when: "before" | "after" | null = null;
  let commits = 0;
  const server = createServer((client) => {
    const upstream = connect(Number(target.port), target.hostname);
    let deaf = false;
    const end = (): void => {
      client.destroy();
      upstream.destroy();
    };
    for (const socket of [client, upstream]) {
      open.add(socket);
      socket.on("error", end);
      socket.on("close", () => {
        open.delete(socket);
        end();
      });
    }
    client.on("data", (data) => {
      if (/\bcommit\b/i.test(data.toString("latin1"))) {
        commits++;
        if (when === "before") return end();
        deaf = when === "after";
      }
      upstream.write(data);
    });
    upstream.on("data", (data) => {
      if (deaf) end();
      else client.write(data);
    });
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  const through = new URL(url);
  through.port = String((server.address() as { port: number }).port);
  return {
    url: through.href,
    cut(then) {
      when = then;
      commits = 0;
    },
    commits: () => commits,
    close: () =>
      new Promise((resolve) => {
        for (const socket of open) socket.destroy();
        server.close(() => resolve());
      }),
  };
}
