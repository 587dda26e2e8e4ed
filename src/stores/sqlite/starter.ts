import type { StoreStarter } from "../../contracts/starter.ts";
import { both, createTable } from "../kit/starter.ts";

export const starter: StoreStarter = {
  word: "sqlite",
  packages: ["libsql"],
  url: "sqlite:./shop.db",
  service: null,
  libraries: [
    {
      word: "libsql",
      packages: [],
      imports: both('import Database from "libsql";'),
      open: [
        'const path = config.store.replace("sqlite:", "");',
        'const builtin = "node:sqlite"; // from Node 22.13 on the waybill commands use it too, and one file wants one client',
        "const own = await import(builtin).catch(() => null);",
        "const open = (file) => new (own?.DatabaseSync ?? Database)(file);",
        "const db = open(path);",
        'db.exec("PRAGMA busy_timeout = 5000"); // other processes write to this file too',
      ],
      db: "db",
      options: "{ path, open }",
      handle: null,
      table: createTable("db.exec", { orders: "id TEXT PRIMARY KEY, total INTEGER NOT NULL", parcels: "order_id TEXT PRIMARY KEY" }),
      insert: {
        orders: 'tx.prepare("INSERT INTO orders (id, total) VALUES (?, ?)").run(order.id, order.total);',
        parcels: 'tx.prepare("INSERT INTO parcels (order_id) VALUES (?)").run(event.aggregateId);',
      },
      close: "db.close();",
    },
  ],
};
