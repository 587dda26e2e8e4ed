import { once } from "node:events";
import { createServer, type AddressInfo, type Server } from "node:net";
import pg from "pg";
import { afterAll, afterEach, beforeAll, beforeEach, expect, test } from "vitest";
import { fromPg } from "../../src/outbox/handles/index.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { postgres } from "../../src/stores/postgres/index.ts";

/** A server that lets a session in and ends it in the same packet: as a restart, a failover or an administrator does to a slow network. */
let server: Server;
beforeAll(async () => {
  server = createServer((socket) => {
    socket.on("error", () => undefined);
    socket.once("data", () => socket.end(Buffer.concat([welcome, ready, ended])));
  });
  server.listen(0, "127.0.0.1");
  await once(server, "listening");
});
afterAll(() => server.close());

const urlOf = (): string => `postgres://u:p@127.0.0.1:${(server.address() as AddressInfo).port}/d`;
const message = (type: string, body: Buffer): Buffer => {
  const head = Buffer.alloc(5);
  head.write(type);
  head.writeInt32BE(body.length + 4, 1);
  return Buffer.concat([head, body]);
};
const welcome = message("R", Buffer.alloc(4));
const ready = message("Z", Buffer.from("I"));
const ended = message("E", Buffer.from("SFATAL\0VFATAL\0C57P01\0Mterminating connection due to administrator command\0\0"));

/** The test runner listens too, and fails the run; here the test itself is to fail. */
let crashes: unknown[] = [];
const crash = (error: unknown): void => void crashes.push(error);
beforeEach(() => {
  crashes = [];
  process.on("uncaughtException", crash);
});
afterEach(() => void process.off("uncaughtException", crash));

const ways = {
  "a store's own pool": async () => {
    await using store = postgres({ url: urlOf() });
    await store.operator.show("x");
  },
  "a pool that the store was given": async (pool: pg.Pool) => void (await postgres({ pool }).operator.show("x")),
  "the pool of outbox.transaction": (pool: pg.Pool) => createOutbox({ store: postgres({ pool }) }).transaction(pool, () => undefined),
  "the pool of a handle": (pool: pg.Pool) => fromPg.begin(pool, async () => undefined),
};

for (const [name, way] of Object.entries(ways))
  test(`a session that is ended as it begins ends one call, and not the process: ${name}`, async () => {
    const pool = new pg.Pool({ connectionString: urlOf() });
    pool.on("error", () => undefined);
    const counts: number[] = [];
    pool.on("remove", (client) => counts.push(client.listenerCount("error")));
    try {
      await expect(way(pool)).rejects.toThrow(/terminat|not queryable|Connection/);
    } finally {
      await pool.end();
    }
    expect(crashes).toEqual([]);
    expect(counts.every((count) => count <= 1)).toBe(true); // the pool's own: nothing of ours is left behind
  });
