import { Agent, request } from "node:http";
import type { Clock } from "../core/clock.ts";
import type { Random } from "../core/random.ts";
import { alarm, shared } from "../core/time.ts";
import { creditLimit } from "./shop.ts";

export interface OrderLoad {
  /** Places one order whose second event the broker refuses, and returns its id. The followers of that event have to wait. */
  poison(): string;
  /** Begins no more orders, and finishes those that are under way. */
  stop(): Promise<void>;
}

interface LoadOptions {
  readonly port: number;
  readonly perSecond: number;
  readonly clock: Clock;
  readonly random: Random;
}

const mostOpen = 200;
const declinedShare = 0.12;
const answerMs = 10_000;
const againMs = 150;

/** Customers: each order is placed, then changed up to five times, and sometimes cancelled. */
export function startLoad({ port, perSecond, clock, random }: LoadOptions): OrderLoad {
  const agent = new Agent({ keepAlive: true, maxSockets: 16 });
  const stopping = shared(new AbortController());
  const giveUp = shared(new AbortController());
  const open = new Set<Promise<void>>();
  const pick = (least: number, most: number): number => least + Math.floor(random.next() * (most - least + 1));
  const first = clock.now().toString(36);
  let orders = 0;

  const items = (declined: boolean): object[] => {
    const price = declined ? creditLimit + pick(1, 500) : pick(5, 60);
    return [{ sku: `sku-${pick(1, 40)}`, quantity: pick(1, 3), price }];
  };

  /** Retries until there is an answer: a service that was killed comes back, and knows what it has done. */
  const ask = async (method: string, path: string, body: object): Promise<number | null> => {
    while (!giveUp.signal.aborted) {
      const status = await send(agent, { port, method, path, body: JSON.stringify(body) });
      if (status !== null && status < 500) return status;
      await clock.sleep(againMs, giveUp.signal);
    }
    return null;
  };

  /** After a change that is declined, the same change is sent again within the credit limit. */
  const change = async (method: string, path: string, body: (declined: boolean) => object): Promise<void> => {
    if (random.next() < declinedShare) await ask(method, path, body(true));
    await ask(method, path, body(false));
  };

  const live = async (id: string, poisoned: boolean): Promise<void> => {
    const events = poisoned ? 4 : pick(2, 6);
    const customer_id = `customer-${pick(1, 200)}`;
    await change("POST", "/orders", (declined) => ({ order_id: id, customer_id, items: items(declined) }));
    for (let version = 1; version < events; version++) {
      await clock.sleep(poisoned ? 50 : pick(50, 600), stopping.signal);
      if (version === events - 1 && !poisoned && random.next() < 0.3) await ask("DELETE", `/orders/${id}`, { version });
      else {
        const poison = poisoned && version === 1;
        await change("PATCH", `/orders/${id}`, (declined) => ({ version, items: items(declined), poison: poison && !declined }));
      }
    }
  };

  const begin = (poisoned: boolean): string => {
    const id = `${first}-${++orders}`;
    const order = live(id, poisoned).finally(() => open.delete(order));
    open.add(order);
    return id;
  };

  const run = async (): Promise<void> => {
    const from = clock.monotonic();
    for (let due = 0; !stopping.signal.aborted;) {
      const now = Math.floor(((clock.monotonic() - from) * perSecond) / 1_000);
      // On a slow machine, a backlog of more than a second is dropped.
      for (due = Math.max(due, now - perSecond); due < now; due++) if (open.size < mostOpen) begin(false);
      await clock.sleep(Math.max(20, 1_000 / perSecond / 2), stopping.signal);
    }
  };
  const running = run();

  return {
    poison: () => begin(true),
    async stop() {
      stopping.abort();
      const off = alarm(clock, answerMs, () => giveUp.abort());
      await running;
      await Promise.all(open);
      off();
      agent.destroy();
    },
  };
}

/** The status, or null when there was no answer. */
function send(
  agent: Agent,
  { port, method, path, body }: { readonly port: number; readonly method: string; readonly path: string; readonly body: string },
): Promise<number | null> {
  return new Promise((resolve) => {
    const headers = { "content-type": "application/json", "content-length": Buffer.byteLength(body) };
    const sent = request({ agent, host: "127.0.0.1", port, method, path, headers, timeout: answerMs }, (response) => {
      response.resume();
      response.once("close", () => resolve(response.complete ? (response.statusCode ?? null) : null));
    });
    sent.once("error", () => resolve(null));
    sent.once("timeout", () => sent.destroy());
    sent.end(body);
  });
}
