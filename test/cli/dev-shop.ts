import { cpSync, mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { createEye } from "../../src/dev/glance.ts";
import type { Reporter } from "../../src/proof/crew/child.ts";
import { prepare } from "../../src/dev/prepare.ts";
import { play } from "../../src/dev/roles.ts";
import { shopFiles, subscriberNames, type ShopFiles } from "../../src/dev/shop.ts";
import { systemClock } from "../../src/core/clock.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { until } from "./build.ts";

const folders: string[] = [];

export function newFolder(): string {
  const folder = mkdtempSync(join(tmpdir(), "waybill-test-dev-"));
  folders.push(folder);
  return folder;
}

export function removeFolders(): void {
  for (const folder of folders.splice(0)) rmSync(folder, { recursive: true, force: true });
}

export const silent: Reporter = { did: () => undefined, path: () => undefined };

/** Posts one change to the order service; gives its status. */
export async function ask(port: number, method: string, path: string, body: unknown): Promise<number> {
  const headers = { "content-type": "application/json" };
  const response = await fetch(`http://127.0.0.1:${port}${path}`, { method, headers, body: JSON.stringify(body) });
  await response.text();
  return response.status;
}

export const items = (price: number): object[] => [{ sku: "tea", quantity: 2, price }];

/** A shop of two orders with three changes each and one rollback, all of it delivered by the real path, in this process. */
export async function soundShop(naive = false): Promise<string> {
  const folder = newFolder();
  const close = await prepare(folder, { naive, relays: 1 }, systemClock);
  const orders = await play({ role: "orders", name: "orders", folder, naive, port: 0 }, silent);
  for (const id of ["a", "b"]) {
    await ask(orders.port!, "POST", "/orders", { order_id: id, customer_id: "c", items: items(10) });
    await ask(orders.port!, "PATCH", `/orders/${id}`, { version: 1, items: items(20) });
    await ask(orders.port!, "DELETE", `/orders/${id}`, { version: 2 });
  }
  await ask(orders.port!, "POST", "/orders", { order_id: "declined", customer_id: "c", items: items(10_000) });
  await orders.drain();
  const path = [
    ...(naive ? [] : [await play({ role: "relay", name: "relay-1", folder }, silent)]),
    ...(await Promise.all(subscriberNames.map((name) => play({ role: "subscriber", name, folder, naive }, silent)))),
  ];
  await using eye = createEye(folder, systemClock);
  await until(() => eye.delivered());
  await Promise.all(path.map((running) => running.drain()));
  await close();
  return folder;
}

/** A copy of the shop, changed by hand. */
export async function changed(sound: string, plant: Partial<Record<keyof ShopFiles, string>>): Promise<string> {
  const folder = newFolder();
  cpSync(sound, folder, { recursive: true });
  const open = await defaultDriver();
  for (const [name, sql] of Object.entries(plant)) {
    const db = open(shopFiles(folder)[name as keyof ShopFiles]);
    db.exec(sql);
    db.close();
  }
  return folder;
}

export async function rows(folder: string, file: keyof ShopFiles, sql: string): Promise<Record<string, unknown>[]> {
  const db = (await defaultDriver())(shopFiles(folder)[file]);
  try {
    return db.prepare(sql).all() as Record<string, unknown>[];
  } finally {
    db.close();
  }
}
