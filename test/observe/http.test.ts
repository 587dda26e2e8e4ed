import { agesOf } from "../../src/core/ages.ts";
import { once } from "node:events";
import { request } from "node:http";
import { connect, type Socket } from "node:net";
import { networkInterfaces } from "node:os";
import { afterEach, describe, expect, test } from "vitest";
import { httpAddress, listen, type HttpOptions, type HttpServer } from "../../src/observe/http.ts";
import { createMetrics } from "../../src/observe/metrics.ts";
import { pagesOf } from "../../src/observe/pages.ts";
import { recent } from "../../src/observe/recent.ts";
import type { Status } from "../../src/contracts/operator.ts";
import { memory } from "../../src/stores/memory/index.ts";
import { manualClock } from "../../src/testing/manual-clock.ts";

const words = { address: "--http", token: "--http-token-file PATH" };
const token = "a-token-of-some-length";
const open: HttpServer[] = [];
afterEach(async () => {
  for (const server of open.splice(0)) await server[Symbol.asyncDispose]();
});

async function serve(options: Partial<HttpOptions> = {}): Promise<string> {
  const server = await listen(
    {
      address: { host: "127.0.0.1", port: 0 },
      token: null,
      ready: () => Promise.resolve(true),
      metrics: () => Promise.resolve("waybill_x 1\n"),
      ...options,
    },
    words,
  );
  open.push(server);
  return server.url;
}

interface Answer {
  readonly status: number;
  readonly body: string;
  readonly headers: Readonly<Record<string, unknown>>;
}

function ask(url: string, { method = "GET", headers = {} }: { method?: string; headers?: Record<string, string> } = {}): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const outgoing = request(url, { method, headers, agent: false }, (response) => {
      let body = "";
      response.setEncoding("utf8");
      response.on("data", (text: string) => (body += text));
      response.on("end", () => resolve({ status: response.statusCode ?? 0, body, headers: response.headers }));
    });
    outgoing.on("error", reject);
    outgoing.end();
  });
}

describe("the address", () => {
  test.each([
    ["127.0.0.1:9464", { host: "127.0.0.1", port: 9464 }],
    ["[::1]:9464", { host: "::1", port: 9464 }],
    ["localhost:0", { host: "localhost", port: 0 }],
    ["9464", { host: "127.0.0.1", port: 9464 }],
    [":9464", { host: "127.0.0.1", port: 9464 }],
  ])("%s is read", (text, address) => {
    expect(httpAddress(text, words)).toEqual(address);
  });

  test.each(["", "localhost", "localhost:", "localhost:70000", "http://localhost:1", "a b:1", "::1:80", "user@h:1"])(
    "%j is refused",
    (text) => {
      expect(() => httpAddress(text, words)).toThrow(/--http must be HOST:PORT/);
    },
  );

  test.each(["0.0.0.0", "::", "192.0.2.1", "example.test"])("%s needs a token", async (host) => {
    await expect(serve({ address: { host, port: 0 } })).rejects.toMatchObject({ code: "INVALID_OPTION", message: /needs a token/ });
  });

  test("a token must be long enough", async () => {
    await expect(serve({ token: "short" })).rejects.toMatchObject({ code: "INVALID_OPTION" });
  });

  test("that is taken is refused in words", async () => {
    const { port } = new URL(await serve());
    await expect(serve({ address: { host: "127.0.0.1", port: Number(port) } })).rejects.toMatchObject({
      code: "INVALID_OPTION",
      message: /cannot be used/,
    });
  });
});

describe("the pages", () => {
  test("tell health, readiness and metrics", async () => {
    const url = await serve();
    expect(await ask(`${url}/healthz`)).toMatchObject({ status: 200, body: "ok\n" });
    expect(await ask(`${url}/readyz`)).toMatchObject({ status: 200 });
    const metrics = await ask(`${url}/metrics?x=1`);
    expect(metrics).toMatchObject({ status: 200, body: "waybill_x 1\n" });
    expect(metrics.headers).toMatchObject({
      "content-type": "text/plain; version=0.0.4; charset=utf-8",
      "cache-control": "no-store",
      "x-content-type-options": "nosniff",
    });
    expect(await ask(`${url}/api/events`)).toMatchObject({ status: 404 });
  });

  test("say 503 while the relay is not ready or its store does not answer", async () => {
    expect(await ask(`${await serve({ ready: () => Promise.resolve(false) })}/readyz`)).toMatchObject({ status: 503 });
    expect(await ask(`${await serve({ ready: () => Promise.reject(new Error("locked")) })}/readyz`)).toMatchObject({ status: 503 });
  });

  test("never tell an inner error", async () => {
    const answer = await ask(`${await serve({ metrics: () => Promise.reject(new Error("postgres://ann:s3cret@db")) })}/metrics`);
    expect(answer.status).toBe(500);
    expect(answer.body).not.toContain("s3cret");
  });

  test.each(["POST", "PUT", "DELETE", "OPTIONS", "HEAD"])("refuse %s", async (method) => {
    const url = await serve();
    for (const page of ["/healthz", "/metrics", "/other"])
      expect(await ask(url + page, { method })).toMatchObject({ status: 405, headers: { allow: "GET" } });
  });

  test("are not served under a stranger's host name", async () => {
    const url = await serve();
    for (const host of ["evil.test", "evil.test:9464", "localhost.evil.test", "127.0.0.1.evil.test", "127.evil.test", "192.0.2.1"]) {
      for (const page of ["/healthz", "/readyz", "/metrics"])
        expect(await ask(url + page, { headers: { host } })).toMatchObject({ status: 421 });
    }
    for (const host of ["localhost", "LOCALHOST:1", "127.0.0.1:1", "[::1]:1"])
      expect(await ask(`${url}/healthz`, { headers: { host } })).toMatchObject({ status: 200 });
  });

  test("with a token show metrics to nobody without it", async () => {
    const url = await serve({ token });
    for (const authorization of ["", "Bearer", `Bearer ${token}x`, `Basic ${token}`, `Bearer ${token.slice(1)}`, token]) {
      expect(await ask(`${url}/metrics`, { headers: { authorization } })).toMatchObject({
        status: 401,
        headers: { "www-authenticate": "Bearer" },
      });
    }
    expect(await ask(`${url}/metrics`, { headers: { authorization: `Bearer ${token}`, host: "relay.internal" } })).toMatchObject({
      status: 200,
    });
    expect(await ask(`${url}/healthz`)).toMatchObject({ status: 200 });
  });
});

test("connections that say nothing, or only half of a request, keep no probe out", async () => {
  const url = await serve();
  const { port } = new URL(url);
  const silent = await Promise.all(
    Array.from({ length: 200 }, async (_, n) => {
      const socket = connect(Number(port), "127.0.0.1");
      socket.on("error", () => undefined);
      await once(socket, "connect");
      if (n % 2 === 0) socket.write("GET /healthz HTTP/1.1\r\nHost: local");
      return socket;
    }),
  );
  try {
    for (const page of ["/healthz", "/readyz", "/metrics"]) expect(await ask(url + page)).toMatchObject({ status: 200 });
  } finally {
    for (const socket of silent) socket.destroy();
  }
});

test("a request that is being answered makes way for no other connection", async () => {
  let finish = (): void => undefined;
  let began = (): void => undefined;
  const asked = new Promise<void>((resolve) => (began = resolve));
  const url = await serve({
    metrics: () => {
      began();
      return new Promise((resolve) => (finish = () => resolve("waybill_x 1\n")));
    },
  });
  const slow = ask(`${url}/metrics`);
  await asked;
  const silent = await Promise.all(
    Array.from({ length: 100 }, async () => {
      const socket = connect(Number(new URL(url).port), "127.0.0.1");
      socket.on("error", () => undefined);
      await once(socket, "connect");
      return socket;
    }),
  );
  expect(await ask(`${url}/healthz`)).toMatchObject({ status: 200 });
  finish();
  expect(await slow).toMatchObject({ status: 200 });
  for (const socket of silent) socket.destroy();
});

/** Sends `text` again and again, whatever comes back, until the server ends the connection. */
async function hostile(port: number, text: string, times: number): Promise<Socket> {
  const socket = connect(port, "127.0.0.1");
  socket.on("error", () => undefined);
  await once(socket, "connect");
  socket.pause();
  socket.write(text.repeat(times));
  return socket;
}

const closed = (socket: Socket): Promise<unknown> => (socket.destroyed ? Promise.resolve() : once(socket.resume(), "close"));

describe("a hostile client", () => {
  test("gets one answer for a connection, however many requests it pipelines, and only that one is worked on", async () => {
    let asked = 0;
    const url = await serve({ metrics: () => Promise.resolve(`waybill_x ${(asked += 1)}\n`) });
    const request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const sockets = await Promise.all(Array.from({ length: 50 }, () => hostile(Number(new URL(url).port), request, 20_000)));
    const answers = await Promise.all(
      sockets.map(async (socket) => {
        let text = "";
        socket.setEncoding("utf8").on("data", (more: string) => (text += more));
        await closed(socket);
        return text.match(/HTTP\/1\.1 200/g)?.length ?? 0;
      }),
    );
    expect(Math.max(...answers)).toBeLessThanOrEqual(1);
    expect(asked).toBeLessThanOrEqual(50);
    expect(await ask(`${url}/healthz`)).toMatchObject({ status: 200 });
  });

  test("that takes no answers makes 16 MiB of them wait at most, for 5 seconds at most", async () => {
    const page = "waybill_x 1\n".repeat(400_000); // more than the buffers of a socket hold
    let asked = 0;
    const url = await serve({ metrics: () => ((asked += 1), Promise.resolve(page)) });
    const began = performance.now();
    const request = "GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n";
    const sockets = await Promise.all(Array.from({ length: 200 }, () => hostile(Number(new URL(url).port), request, 1)));
    const untaken = (): number => sockets.filter((socket) => !socket.destroyed).length;
    await expect.poll(async () => (await ask(`${url}/metrics`).catch(() => null))?.status, { timeout: 15_000, interval: 500 }).toBe(200);
    const tookMs = performance.now() - began;
    expect(tookMs).toBeLessThan(15_000);
    expect(asked).toBeLessThanOrEqual(250);
    expect(untaken()).toBeGreaterThan(0); // they have not noticed: they do not read
    const told = await Promise.all(
      sockets.map(async (socket) => {
        let bytes = 0;
        socket.on("data", (more: Buffer) => (bytes += more.length));
        await closed(socket);
        return bytes;
      }),
    );
    // Those that were given a page lost the rest of it; more pages than 16 MiB hold were never begun, within the 5 seconds that each may wait.
    expect(told.filter((bytes) => bytes > 10_000).length).toBeLessThanOrEqual(4 * Math.ceil(tookMs / 5_000));
    expect(Math.max(...told)).toBeLessThan(page.length);
  }, 30_000);

  test.each([
    ["refused", `x:${" ".repeat(8_000)}\nb`, 400],
    ["taken", `x:${" ".repeat(8_000)}b${" ".repeat(50)}`, 200],
  ])(
    "whose header is full of blanks is %s within milliseconds",
    async (_, header, status) => {
      const { port } = new URL(await serve());
      const socket = await hostile(Number(port), `GET /healthz HTTP/1.1\r\nHost: localhost\r\n${header}\r\n\r\n`, 1);
      let text = "";
      socket.setEncoding("utf8").on("data", (more: string) => (text += more));
      await closed(socket);
      expect(text.slice(0, 12)).toBe(`HTTP/1.1 ${status}`);
    },
    5_000,
  );

  test("that sends a request byte by byte is ended after 5 seconds, and one with endless headers at 8 KiB", async () => {
    const { port } = new URL(await serve());
    const began = performance.now();
    const drip = await hostile(Number(port), "GET /healthz HTTP/1.1\r\n", 1);
    const dripping = setInterval(() => drip.write("a"), 200);
    await closed(drip);
    clearInterval(dripping);
    expect(performance.now() - began).toBeLessThan(10_000);
    const long = await hostile(Number(port), `GET /healthz HTTP/1.1\r\nx: ${"y".repeat(9_000)}\r\n`, 1);
    let text = "";
    long.setEncoding("utf8").on("data", (more: string) => (text += more));
    await closed(long);
    expect(text).toMatch(/^HTTP\/1\.1 431 /);
  }, 30_000);

  test.each([
    "nonsense\r\n\r\n",
    "GET /healthz\r\n\r\n",
    "GET /healthz HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
    "GET / HTTP/1.1\r\nno colon\r\n\r\n",
  ])("that sends %j is told 400", async (text) => {
    const socket = await hostile(Number(new URL(await serve()).port), text, 1);
    let told = "";
    socket.setEncoding("utf8").on("data", (more: string) => (told += more));
    await closed(socket);
    expect(told).toMatch(/^HTTP\/1\.1 400 /);
  });
});

test("by default nothing but loopback answers", async () => {
  const { port } = new URL(await serve());
  const outside = Object.values(networkInterfaces())
    .flatMap((addresses) => addresses ?? [])
    .filter(({ internal, family }) => !internal && family === "IPv4");
  for (const { address } of outside) await expect(ask(`http://${address}:${port}/healthz`)).rejects.toThrow(/ECONNREFUSED/);
});

describe("what the store is asked for", () => {
  const recency = { freshMs: 1_000, patienceMs: 700, staleMs: 15_000 };
  /** Answers with 1, 2, 3, each as late as it is told then. */
  const slow = (clock: ReturnType<typeof manualClock>) => {
    const asking = { times: 0, takesMs: 0 };
    const latest = recent(
      async () => {
        const nth = (asking.times += 1);
        if (asking.takesMs > 0) await clock.sleep(asking.takesMs);
        return nth;
      },
      recency,
      clock,
    );
    return { asking, latest };
  };

  test("is asked for once a second at most, however many want it and however long it takes", async () => {
    const clock = manualClock();
    const { asking, latest } = slow(clock);
    asking.takesMs = 500;
    const first = [latest(), latest()];
    await clock.advance(499);
    first.push(latest());
    await clock.advance(1);
    expect(await Promise.all(first)).toEqual([1, 1, 1]);
    await clock.advance(999);
    expect(await latest()).toBe(1);
    await clock.advance(1);
    const second = latest();
    await clock.advance(500);
    expect(await second).toBe(2);
    expect(asking.times).toBe(2);
  });

  test("of a store that takes its time is the answer before, so that a large table does not look like a store that is away", async () => {
    const clock = manualClock();
    const { asking, latest } = slow(clock);
    expect(await latest()).toBe(1);
    asking.takesMs = 5_000;
    for (const expected of [1, 2]) {
      await clock.advance(1_000);
      const late = latest();
      await clock.advance(699);
      expect(await Promise.race([late, Promise.resolve("waits")])).toBe("waits");
      await clock.advance(1);
      expect(await late).toBe(expected);
      await clock.advance(4_300);
    }
    expect(asking.times).toBe(3);
  });

  test("of a store that takes its time is the answer before, however seldom it is asked for", async () => {
    const clock = manualClock();
    const { asking, latest } = slow(clock);
    expect(await latest()).toBe(1);
    asking.takesMs = 1_200;
    for (const expected of [1, 2, 3]) {
      await clock.advance(60_000);
      const late = latest();
      await clock.advance(700);
      expect(await late).toBe(expected);
    }
  });

  test("of a store that is silent is none when it has been asked for too long, and nobody waits for it", async () => {
    const clock = manualClock();
    const { asking, latest } = slow(clock);
    expect(await latest()).toBe(1);
    asking.takesMs = 3_600_000;
    await clock.advance(1_000);
    const outcome = async (): Promise<unknown> => {
      const asked = latest().catch((error: unknown) => error);
      await clock.advance(700);
      return asked;
    };
    expect(await outcome()).toBe(1);
    await clock.advance(recency.staleMs - 1_400);
    expect(await outcome()).toBe(1);
    expect(await outcome()).toMatchObject({ code: "STORE_UNAVAILABLE" });
    expect(asking.times).toBe(2);
  });

  test("of a store that never answered is none, and nobody waits for it", async () => {
    const clock = manualClock();
    const { asking, latest } = slow(clock);
    asking.takesMs = 3_600_000;
    const refused = expect(latest()).rejects.toMatchObject({ code: "STORE_UNAVAILABLE" });
    await clock.advance(700);
    await refused;
    expect(asking.times).toBe(1);
  });

  test("is not asked for again and again while the store fails, and is asked for again a second later", async () => {
    const clock = manualClock();
    let asked = 0;
    const latest = recent(() => (++asked === 1 ? Promise.reject(new Error("locked")) : Promise.resolve("well")), recency, clock);
    for (let i = 0; i < 5; i++) await expect(latest()).rejects.toThrow("locked");
    expect(asked).toBe(1);
    await clock.advance(1_000);
    expect(await latest()).toBe("well");
  });

  test("that throws instead of answering is a failed answer, and is not hidden behind the one before", async () => {
    const clock = manualClock();
    let asked = 0;
    const ask = (): Promise<string> => {
      if (++asked === 2) throw new Error("closed");
      return Promise.resolve("well");
    };
    const latest = recent(ask, recency, clock);
    expect(await latest()).toBe("well");
    await clock.advance(1_000);
    await expect(latest()).rejects.toThrow("closed");
    await expect(latest()).rejects.toThrow("closed");
    await clock.advance(1_000);
    expect(await latest()).toBe("well");
  });
});

test("readiness does not wait for a status that takes its time", async () => {
  const { operator, leases } = memory();
  const { ready } = pagesOf({
    store: { operator: { ...operator, status: () => new Promise(() => undefined) }, leases },
    metrics: createMetrics(),
  });
  expect(await ready()).toBe(true);
});

describe("metrics", () => {
  const status: Status = {
    states: { PENDING: 1, PUBLISHING: 2, PUBLISHED: 3, FAILED: 4, BLOCKED: 5, DEAD: 6, DISCARDED: 7 },
    estimated: [],
    oldestUnpublishedMs: 1_500,
    oldest: { claimableMs: null, blockedMs: null, deadMs: null, types: [] },
    relays: [{ relay: "r", live: true, expiresAt: new Date(0), lanes: [0], window: 2, windowLimit: 1500 }],
    lanes: { total: 64, owned: 60, free: 4 },
    holds: { aggregates: 8, blocked: 5, list: [] },
    breakers: [{ destination: 'odd"\\\ntopic', why: "w", since: new Date(0), aggregates: 9 }],
    window: { events: 2, suspects: 1 },
    dead: [],
    schemaVersion: 1,
  };

  test("hold the tables' state and this relay's counters", () => {
    const metrics = createMetrics();
    metrics.observe({ type: "relay.published", relay: "r", count: 10, ms: 1 });
    metrics.observe({ type: "relay.published", relay: "r", count: 5, ms: 1 });
    metrics.observe({
      type: "relay.died",
      id: "1",
      aggregateType: "a",
      aggregateId: "b",
      eventType: "c",
      error: "e",
      followers: "blocked",
    });
    metrics.observe({ type: "relay.trouble", relay: "r", step: "claim", error: "e", code: null });
    const lines = metrics.text(status).split("\n");
    expect(lines).toContain('waybill_events{state="DEAD"} 6');
    expect(lines).toContain("waybill_oldest_unpublished_seconds 1.5");
    expect(lines).toContain('waybill_waiting_aggregates{topic="odd\\"\\\\\\ntopic"} 9');
    expect(lines).toContain("waybill_published_total 15");
    expect(lines).toContain("waybill_deaths_total 1");
    expect(lines).toContain('waybill_trouble_total{step="claim"} 1');
    expect(lines).toContain("waybill_failed_total 0");
    expect(lines).toContain("waybill_store_up 1");
    expect(lines.some((line) => /^waybill_build_info\{version="\d+\.\d+\.\d+.*",node="\d+\..*"\} 1$/.test(line))).toBe(true);
  });

  test("have the ages of what can be claimed, is blocked and is dead apart, and by aggregate type", () => {
    const oldest = {
      ...{ claimableMs: 1_500, blockedMs: null, deadMs: 60_000 },
      types: [{ aggregateType: "Order", claimableMs: 1_500, blockedMs: null, deadMs: 60_000 }],
    };
    const lines = createMetrics()
      .text({ ...status, oldest })
      .split("\n");
    expect(lines).toContain("waybill_oldest_claimable_seconds 1.5");
    expect(lines).toContain("waybill_oldest_blocked_seconds 0");
    expect(lines).toContain("waybill_oldest_dead_seconds 60");
    expect(lines.filter((line) => line.startsWith("waybill_oldest_by_type_seconds"))).toEqual([
      'waybill_oldest_by_type_seconds{aggregate_type="Order",waits="claimable"} 1.5',
      'waybill_oldest_by_type_seconds{aggregate_type="Order",waits="dead"} 60',
    ]);
  });

  test("have a histogram from the adding of an event to the broker's acknowledgement", () => {
    const metrics = createMetrics();
    const created = [0, 5, 990, 1_000].map((ms) => new Date(ms));
    const ages = agesOf(1_000, created, (at) => at);
    metrics.observe({ type: "relay.published", relay: "r", count: 4, ms: 1, ages });
    metrics.observe({ type: "relay.published", relay: "r", count: 1, ms: 1, ages: agesOf(100_000_000, [new Date(0)], (at) => at) });
    const lines = metrics.text().split("\n");
    const le = (bound: string): string | undefined => lines.find((line) => line.includes(`_bucket{le="${bound}"}`))?.split(" ")[1];
    expect(["0.005", "0.01", "0.5", "1", "21600", "+Inf"].map(le)).toEqual(["1", "2", "2", "4", "4", "5"]);
    expect(lines).toContain("waybill_publish_latency_seconds_count 5");
    expect(lines).toContain("waybill_publish_latency_seconds_sum 100002.005");
    expect(lines).toContain("# TYPE waybill_publish_latency_seconds histogram");
  });

  test("mark the counts that are estimates, under the same names as ever", () => {
    const lines = createMetrics()
      .text({ ...status, estimated: ["PUBLISHED"] })
      .split("\n");
    expect(lines).toContain('waybill_events{state="PUBLISHED"} 3');
    expect(lines).toContain('waybill_events_estimated{state="PUBLISHED"} 1');
    expect(lines).toContain('waybill_events_estimated{state="PENDING"} 0');
  });

  test("are in the text format, each name once", () => {
    const text = createMetrics().text(status);
    expect(text.endsWith("\n")).toBe(true);
    for (const line of text.trimEnd().split("\n"))
      expect(line).toMatch(/^(# (HELP|TYPE) waybill_\w+ .+|waybill_\w+(\{\w+="(?:[^"\\]|\\.)*"(,\w+="(?:[^"\\]|\\.)*")*\})? [\d.]+)$/);
    const types = text.split("\n").filter((line) => line.startsWith("# TYPE"));
    expect(new Set(types).size).toBe(types.length);
  });

  test("show the counters when the store does not answer", () => {
    const text = createMetrics().text(null);
    expect(text).toContain("waybill_store_up 0");
    expect(text).toContain("waybill_published_total 0");
    expect(text).not.toContain("waybill_events{");
  });
});
