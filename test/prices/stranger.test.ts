import { once } from "node:events";
import { connect, type Socket } from "node:net";
import { expect, onTestFinished, test } from "vitest";
import { listen, type HttpOptions } from "../../src/observe/http.ts";

/** What the pages for probes cost, beside somebody who can connect and has no token. */
const mostConnections = 64;
const mostBytes = 16 * 1024 * 1024;

async function serve(options: Partial<HttpOptions>): Promise<number> {
  const server = await listen(
    {
      address: { host: "127.0.0.1", port: 0 },
      token: null,
      ready: () => Promise.resolve(true),
      metrics: () => Promise.resolve("waybill_x 1\n"),
      ...options,
    },
    { address: "--http", token: "--http-token-file" },
  );
  onTestFinished(() => server[Symbol.asyncDispose]());
  return Number(new URL(server.url).port);
}

const request = (page: string): string => `GET ${page} HTTP/1.1\r\nHost: localhost\r\n\r\n`;

async function stranger(port: number, text: string): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  onTestFinished(() => void socket.destroy());
  await once(socket, "connect");
  socket.write(text);
  return socket;
}

/** What a client reads until the server ends the connection. */
async function told(socket: Socket): Promise<string> {
  let text = "";
  socket.setEncoding("latin1").on("data", (more: string) => (text += more));
  if (!socket.closed) await once(socket.resume(), "close");
  return text;
}

test("50 connections that send 20,000 requests each at once cost 50 answers", async () => {
  let asked = 0;
  const port = await serve({ ready: () => Promise.resolve((asked += 1) > 0) });
  const sockets = await Promise.all(Array.from({ length: 50 }, () => stranger(port, request("/readyz").repeat(20_000))));
  const answers = await Promise.all(sockets.map(told));
  expect(asked).toBeLessThanOrEqual(50);
  for (const answer of answers) expect(answer.match(/HTTP\/1\.1 /g)?.length ?? 0).toBeLessThanOrEqual(1);
});

test("of 500 connections that wait for an answer, 64 are kept", async () => {
  let asked = 0;
  const port = await serve({ metrics: () => new Promise<never>(() => void (asked += 1)) });
  let over = 0;
  for (let n = 0; n < 500; n++) (await stranger(port, request("/metrics"))).resume().once("close", () => (over += 1));
  await expect.poll(() => over + asked, { timeout: 30_000 }).toBeGreaterThanOrEqual(500);
  expect(asked).toBeLessThanOrEqual(mostConnections);
});

test("answers that nobody takes wait in 16 MiB, and make room after a while", async () => {
  const page = "waybill_x 1\n".repeat(400_000); // more than the buffers of a socket hold
  const port = await serve({ metrics: () => Promise.resolve(page) });
  const began = performance.now();
  const sockets = await Promise.all(Array.from({ length: 40 }, async () => (await stranger(port, request("/metrics"))).pause()));
  const whole = async (): Promise<boolean> => (await told(await stranger(port, request("/metrics")))).length > page.length;
  await expect.poll(whole, { timeout: 40_000, interval: 500 }).toBe(true);
  const texts = await Promise.all(sockets.map(told));
  const given = texts.filter((text) => text.length > 10_000).length;
  // Each page of the 16 MiB may make room for another one every 5 seconds.
  const rounds = 1 + Math.floor((performance.now() - began) / 5_000);
  expect(given).toBeLessThanOrEqual(rounds * Math.ceil(mostBytes / page.length));
});
