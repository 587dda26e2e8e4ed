import { createServer, type IncomingMessage, type Server } from "node:http";
import { asError, WaybillError } from "../core/errors.ts";
import { hostAllowed } from "../observe/http.ts";
import type { Change, Orders, OrderOutcome } from "./orders.ts";
import type { OrderItem } from "./shop.ts";

/**
 * POST /orders, PATCH /orders/ID and DELETE /orders/ID, on loopback only. A client may choose the order's id and says which
 * version it has seen, so that asking again after a lost answer changes nothing.
 */
export async function serveOrders(
  orders: Orders,
  { port, newId, did }: { readonly port: number; readonly newId: () => string; did(what: string): void },
): Promise<{ readonly port: number; close(): Promise<void> }> {
  const server = createServer({ requestTimeout: 10_000 }, (request, response) => {
    void answer(request, orders, newId).then(({ status, body, what }) => {
      response.writeHead(status, { "content-type": "application/json", "x-content-type-options": "nosniff", "cache-control": "no-store" });
      response.end(`${JSON.stringify(body)}\n`);
      did(`${what} ${status}`);
    });
  });
  await listening(server, port);
  const address = server.address();
  return {
    port: typeof address === "object" && address !== null ? address.port : port,
    close: () =>
      new Promise((resolve) => {
        server.close(() => resolve());
        server.closeIdleConnections();
      }),
  };
}

const loopback = "127.0.0.1";

function listening(server: Server, port: number): Promise<void> {
  return new Promise((resolve, reject) => {
    server.once("error", (cause) =>
      reject(new WaybillError("INVALID_OPTION", `--port ${port} cannot be used: ${cause.message}`, { cause })),
    );
    server.listen(port, loopback, resolve);
  });
}

interface Answer {
  readonly status: number;
  readonly body: object;
  readonly what: string;
}

class BadRequest extends Error {}

const statuses: Readonly<Record<OrderOutcome["status"], number>> = { done: 200, known: 200, declined: 402, conflict: 409, unknown: 404 };

async function answer(request: IncomingMessage, orders: Orders, newId: () => string): Promise<Answer> {
  const [, collection, id, ...more] = (request.url ?? "").split("?")[0]!.split("/");
  const { method = "" } = request;
  const what = `${method} /orders${id === undefined ? "" : "/…"}`;
  try {
    // Any web page that is open on this machine can send to loopback: under its own host name, or as a form, which needs no permission.
    if (!hostAllowed(request.headers.host, loopback)) return { status: 421, body: { error: "this host name is not served here" }, what };
    const type = types.get(`${method}${id === undefined ? "" : " one"}`);
    if (collection !== "orders" || more.length > 0 || type === undefined) {
      return {
        status: 404,
        body: { error: "there are POST /orders, PATCH /orders/ID and DELETE /orders/ID" },
        what: `${method} elsewhere`,
      };
    }
    if (!/^application\/json *(;|$)/i.test(request.headers["content-type"] ?? ""))
      return { status: 415, body: { error: "send it with the header content-type: application/json" }, what };
    const change = changeOf(type, await bodyOf(request), id, newId);
    const outcome = await orders.change(change);
    const status = outcome.status === "done" && method === "POST" ? 201 : statuses[outcome.status];
    const version = "version" in outcome ? { version: outcome.version } : {};
    return { status, body: { order_id: change.orderId, status: outcome.status, ...version }, what };
  } catch (error) {
    return { status: error instanceof BadRequest ? 400 : 500, body: { error: asError(error).message }, what };
  }
}

const types = new Map<string, Change["type"]>([
  ["POST", "OrderPlaced"],
  ["PATCH one", "OrderUpdated"],
  ["DELETE one", "OrderCancelled"],
]);

const mostBytes = 64 * 1024;

async function bodyOf(request: IncomingMessage): Promise<Readonly<Record<string, unknown>>> {
  const chunks: Buffer[] = [];
  let size = 0;
  for await (const chunk of request as AsyncIterable<Buffer>) {
    size += chunk.length;
    if (size > mostBytes) throw new BadRequest(`an order takes ${mostBytes} bytes at most`);
    chunks.push(chunk);
  }
  let body: unknown;
  try {
    body = JSON.parse(Buffer.concat(chunks).toString("utf8"));
  } catch {
    throw new BadRequest("the body must be JSON");
  }
  if (typeof body !== "object" || body === null || Array.isArray(body)) throw new BadRequest("the body must be a JSON object");
  return body as Record<string, unknown>;
}

function changeOf(type: Change["type"], body: Readonly<Record<string, unknown>>, id: string | undefined, newId: () => string): Change {
  const placing = type === "OrderPlaced";
  const orderId = id ?? body["order_id"] ?? newId();
  if (typeof orderId !== "string" || !/^[\w-]{1,64}$/.test(orderId))
    throw new BadRequest("order_id must be 1 to 64 letters, digits, - or _");
  const customerId = body["customer_id"] ?? null;
  if (placing && (typeof customerId !== "string" || customerId === "" || customerId.length > 64)) {
    throw new BadRequest("customer_id must be a name of 1 to 64 characters");
  }
  const seen = placing ? 0 : body["version"];
  if (typeof seen !== "number" || !Number.isInteger(seen) || seen < (placing ? 0 : 1)) {
    throw new BadRequest("version must be the order's version that you have seen, 1 or more");
  }
  const items = type === "OrderCancelled" ? null : itemsOf(body["items"]);
  return { orderId, seen, type, customerId: customerId as string | null, items, poison: body["poison"] === true };
}

function itemsOf(given: unknown): readonly OrderItem[] {
  const ok = Array.isArray(given) && given.length >= 1 && given.length <= 50 && given.every(isItem);
  if (!ok) throw new BadRequest('items must be 1 to 50 of { "sku": "…", "quantity": 1, "price": 10 }, in whole numbers of 0 or more');
  return (given as OrderItem[]).map(({ sku, quantity, price }) => ({ sku, quantity, price }));
}

function isItem(given: unknown): boolean {
  if (typeof given !== "object" || given === null) return false;
  const { sku, quantity, price } = given as Partial<Record<keyof OrderItem, unknown>>;
  const whole = (value: unknown): boolean => typeof value === "number" && Number.isInteger(value) && value >= 0 && value <= 1_000_000;
  return typeof sku === "string" && sku !== "" && sku.length <= 64 && whole(quantity) && whole(price);
}
