import { once } from "node:events";
import { connect, createServer, type AddressInfo, type Socket } from "node:net";
import { afterEach, beforeEach, expect, test } from "vitest";
import { startTcpProxy, type TcpProxy } from "../../src/proof/run/tcp-proxy.ts";

const sockets = (): number => process.getActiveResourcesInfo().filter((name) => name === "TCPSocketWrap").length;

let proxy: TcpProxy;
let close: () => Promise<void>;
let base: number;

beforeEach(async () => {
  base = sockets();
  const server = createServer((socket) => void socket.on("error", () => undefined).pipe(socket));
  const others = new Set<Socket>();
  server.on("connection", (socket) => void others.add(socket));
  await new Promise<void>((resolve) => server.listen(0, "127.0.0.1", resolve));
  proxy = await startTcpProxy((server.address() as AddressInfo).port);
  close = async () => {
    for (const socket of others) socket.destroy();
    await new Promise((resolve) => server.close(resolve));
  };
});
afterEach(() => close());

async function client(): Promise<Socket> {
  const socket = connect(proxy.port, "127.0.0.1");
  socket.on("error", () => undefined).on("data", () => undefined);
  await once(socket, "connect");
  socket.write("hello");
  await once(socket, "data");
  return socket;
}

const ends: Readonly<Record<string, (socket: Socket) => void | Promise<void>>> = {
  "its client is gone with a reset": (socket) => void socket.resetAndDestroy(),
  "its client ends": (socket) => void socket.end(),
  "its client ended, and it is reset after that": async (socket) => {
    proxy.fault("down", { hold: true });
    socket.end("more");
    await new Promise((resolve) => setTimeout(resolve, 50));
    proxy.reset();
    proxy.heal();
  },
  "it is cut": (socket) => {
    proxy.fault("up", { cutAfter: 3 });
    socket.write("too much");
  },
};

test.for(Object.keys(ends))("a broken network keeps no socket of a connection once %s", async (how) => {
  const socket = await client();
  await ends[how]!(socket);
  await expect.poll(() => proxy.connections, { timeout: 5_000 }).toBe(0);
  socket.destroy();
  await proxy[Symbol.asyncDispose]();
  await close();
  await expect.poll(sockets, { timeout: 5_000 }).toBe(base);
});

test("what is held back comes late, and goes to where the network leads by then", async () => {
  const first = await client();
  proxy.fault("up", { hold: true });
  first.write("late");
  let heard = "";
  first.on("data", (data) => (heard += String(data)));
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(heard).toBe("");
  proxy.heal();
  await expect.poll(() => heard).toBe("late");

  const other = createServer((socket) => void socket.end("elsewhere"));
  await new Promise<void>((resolve) => other.listen(0, "127.0.0.1", resolve));
  proxy.retarget((other.address() as AddressInfo).port);
  const [answer] = (await once(connect(proxy.port, "127.0.0.1"), "data")) as [Buffer];
  expect(String(answer)).toBe("elsewhere");
  first.destroy();
  await proxy[Symbol.asyncDispose]();
  await new Promise((resolve) => other.close(resolve));
});

test("an answer is held back by whoever waited for its question", async () => {
  const socket = await client();
  let heard = "";
  socket.on("data", (data) => (heard += String(data)));
  const other = await client();
  let asked = false;
  const asking = proxy.seen("UPDATE", "COMMIT").then(() => (asked = true));
  socket.write("UPDATE");
  await expect.poll(() => heard).toBe("UPDATE");
  other.write("a COMMIT of somebody else's");
  await once(other, "data");
  expect(asked).toBe(false);
  socket.write("now COMMIT");
  await asking;
  proxy.fault("down", { hold: true });
  await new Promise((resolve) => setTimeout(resolve, 50));
  expect(heard).toBe("UPDATE");
  proxy.heal();
  await expect.poll(() => heard).toBe("UPDATEnow COMMIT");
  socket.destroy();
  other.destroy();
  await proxy[Symbol.asyncDispose]();
});
