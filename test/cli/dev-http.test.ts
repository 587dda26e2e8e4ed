import { request } from "node:http";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { serveOrders } from "../../src/dev/orders-http.ts";
import type { Change } from "../../src/dev/orders.ts";

interface Sent {
  readonly method?: string;
  readonly path?: string;
  readonly headers?: Readonly<Record<string, string>>;
  readonly body?: string;
}

const changes: Change[] = [];
let server: Awaited<ReturnType<typeof serveOrders>>;
beforeAll(async () => {
  const orders = { change: (change: Change) => Promise.resolve((changes.push(change), { status: "done" as const, version: 1 })) };
  server = await serveOrders(orders, { port: 0, newId: () => "new-1", did: () => undefined });
});
afterAll(() => server.close());

const order = JSON.stringify({ customer_id: "me", items: [{ sku: "tea", quantity: 1, price: 1 }] });
const json = { "content-type": "application/json" };

interface Answer {
  readonly status: number;
  readonly headers: Readonly<Record<string, unknown>>;
}

function send({ method = "POST", path = "/orders", headers = {}, body = order }: Sent): Promise<Answer> {
  return new Promise((resolve, reject) => {
    const sent = request(
      {
        host: "127.0.0.1",
        port: server.port,
        method,
        path,
        headers: { "content-length": Buffer.byteLength(body), ...headers },
        agent: false,
      },
      (response) => {
        response.resume().once("end", () => resolve({ status: response.statusCode!, headers: response.headers }));
      },
    );
    sent.once("error", reject);
    sent.end(body);
  });
}

async function expectStatus(sent: Sent, status: number): Promise<void> {
  changes.length = 0;
  const answer = await send(sent);
  expect(answer.status).toBe(status);
  expect(answer.headers).toMatchObject({ "x-content-type-options": "nosniff" });
  expect(Object.keys(answer.headers).filter((name) => name.startsWith("access-control"))).toEqual([]);
  expect(changes).toHaveLength(status < 300 ? 1 : 0);
}

describe("dev's POST /orders takes orders of this machine only", () => {
  test.each(["127.0.0.1", "localhost", "LOCALHOST", "[::1]"])("as %s", async (host) => {
    await expectStatus({ headers: { ...json, host: `${host}:${server.port}` } }, 201);
  });

  test.each(["evil.test", "evil.test:80", "127.0.0.1.evil.test", "localhost.evil.test", "127.0.0.1@evil.test", "192.168.0.1"])(
    "and not as %j, a name that another site can point here",
    async (host) => {
      await expectStatus({ headers: { ...json, host } }, 421);
      await expectStatus({ headers: { ...json, host }, method: "DELETE", path: "/orders/1", body: '{"version":1}' }, 421);
    },
  );

  test.each([
    "text/plain",
    "application/x-www-form-urlencoded",
    "multipart/form-data",
    "application/jsonp",
    "text/plain; application/json",
    "",
  ])("and not as %j, which a page of another site may send without asking", async (type) => {
    await expectStatus({ headers: { "content-type": type } }, 415);
    await expectStatus({ headers: {} }, 415);
  });

  test.each(["application/json; charset=utf-8", "Application/JSON", "application/json;charset=utf-8"])("but as %j", async (type) => {
    await expectStatus({ headers: { "content-type": type } }, 201);
  });

  test("and a page that asks first is not allowed to", async () => {
    const asking = {
      origin: "http://evil.test",
      "access-control-request-method": "POST",
      "access-control-request-headers": "content-type",
    };
    await expectStatus({ method: "OPTIONS", headers: asking, body: "" }, 404);
  });

  test.each(["GET", "PUT", "HEAD"])("%s changes nothing", async (method) => {
    await expectStatus({ method, headers: json, body: "" }, 404);
  });
});
