import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { systemClock } from "../../core/clock.ts";

/** Up: what the client writes. Down: what the server answers. */
export type Direction = "up" | "down";

/**
 * `hold`: bytes, and the ends of connections, are held until `heal`. To both sides the link looks alive. `latencyMs`: they arrive later.
 * `cutAfter`: this many more bytes pass, over all connections. The next byte resets its connection.
 * `through`: called once for each connection; all its bytes pass through what it answers. When that throws, the connection is reset.
 */
export type LinkFault =
  { readonly hold: true } | { readonly latencyMs: number } | { readonly cutAfter: number } | { readonly through: () => Passage };

/** What arrives in place of these bytes. */
export type Passage = (bytes: Buffer) => AsyncIterable<Buffer>;

export interface TcpProxy extends AsyncDisposable {
  readonly port: number;
  /** How many connections are open. */
  readonly connections: number;
  /** From now on, for connections that are there and for new ones. */
  fault(direction: Direction, fault: LinkFault): void;
  /** Ends every fault. Bytes that were held are sent on. */
  heal(): void;
  /** Resets every connection. New ones are accepted as before. */
  reset(): void;
  /** Resolves when a client has written `first` and then `then`, before the server can have answered. */
  seen(first: string, then: string): Promise<void>;
  /** New connections go there. */
  retarget(to: number | Target): void;
}

/** Where connections go on to. */
export interface Target {
  readonly host: string;
  readonly port: number;
}

/** A network that can be broken, between clients and a server: on this machine where only a port is given. */
export async function startTcpProxy(to: number | Target): Promise<TcpProxy> {
  let target = targetOf(to);
  const faults: Record<Direction, LinkFault | null> = { up: null, down: null };
  const passed: Record<Direction, number> = { up: 0, down: 0 };
  const pairs = new Set<readonly [Socket, Socket]>();
  const awaited = new Set<(client: Socket, chunk: Buffer) => boolean>();
  let healed = deferred();

  const reset = (pair: readonly [Socket, Socket]): void => {
    for (const socket of pair) {
      // Node cannot reset a socket that is ending or has ended: it would stay open for ever, and keep the event loop busy.
      if (socket.writableEnded || socket.destroyed) socket.destroy();
      else socket.resetAndDestroy();
    }
  };

  /** Resolves when bytes may pass, with how many of them. */
  const admitted = async (direction: Direction, bytes: number): Promise<number> => {
    for (let fault = faults[direction]; fault !== null && "hold" in fault; fault = faults[direction]) await healed.promise;
    const fault = faults[direction];
    if (fault === null || "hold" in fault || "through" in fault) return bytes;
    if ("latencyMs" in fault) await systemClock.sleep(fault.latencyMs);
    if (!("cutAfter" in fault)) return bytes;
    const left = Math.max(0, fault.cutAfter - passed[direction]);
    passed[direction] += bytes;
    return Math.min(left, bytes);
  };

  const carry = async (direction: Direction, pair: readonly [Socket, Socket]): Promise<void> => {
    const [from, to] = direction === "up" ? pair : ([pair[1], pair[0]] as const);
    let change: Passage | null = null;
    const write = async (bytes: Buffer): Promise<void> => {
      if (to.destroyed) throw new Error("the connection is closed");
      if (to.write(bytes)) return;
      const passed = new AbortController();
      await Promise.race(["drain", "close"].map((event) => once(to, event, { signal: passed.signal }).catch(() => undefined)));
      passed.abort();
    };
    try {
      for await (const chunk of from as AsyncIterable<Buffer>) {
        const bytes = await admitted(direction, chunk.length);
        if (bytes < chunk.length) return void to.write(chunk.subarray(0, bytes), () => reset(pair));
        if (direction === "up") for (const isIt of awaited) if (isIt(from, chunk)) awaited.delete(isIt);
        const fault = faults[direction];
        if (fault !== null && "through" in fault) change ??= fault.through();
        if (change === null) await write(chunk);
        else for await (const piece of change(chunk)) await write(piece);
      }
      await admitted(direction, 0);
      to.end();
    } catch {
      reset(pair); // one side was reset, and so is the other
    }
  };

  const server = createServer({ allowHalfOpen: true }, (client) => {
    const pair = [client, connect({ ...target, allowHalfOpen: true })] as const;
    pairs.add(pair);
    for (const socket of pair) socket.on("error", () => reset(pair)).setNoDelay(true);
    client.on("close", () => pairs.delete(pair));
    void carry("up", pair);
    void carry("down", pair);
  });
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));

  const heal = (): void => {
    faults.up = faults.down = null;
    const { resolve } = healed;
    healed = deferred();
    resolve();
  };
  return {
    port: (server.address() as AddressInfo).port,
    get connections() {
      return pairs.size;
    },
    fault(direction, fault) {
      passed[direction] = 0;
      faults[direction] = fault;
    },
    heal,
    reset: () => pairs.forEach(reset),
    seen: (first, then) =>
      new Promise((resolve) => {
        const begun = new WeakSet<Socket>();
        awaited.add((client, chunk) => {
          if (chunk.includes(first)) begun.add(client);
          if (!begun.has(client) || !chunk.includes(then)) return false;
          resolve();
          return true;
        });
      }),
    retarget: (to) => void (target = targetOf(to)),
    async [Symbol.asyncDispose]() {
      pairs.forEach(reset);
      heal();
      await new Promise((resolve) => server.close(resolve));
    },
  };
}

const targetOf = (to: number | Target): Target => (typeof to === "number" ? { host: "127.0.0.1", port: to } : to);

function deferred(): { promise: Promise<void>; resolve: () => void } {
  let resolve: () => void = () => undefined;
  const promise = new Promise<void>((done) => (resolve = done));
  return { promise, resolve };
}
