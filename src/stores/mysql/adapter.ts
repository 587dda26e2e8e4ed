import type { Ask, SqlRow, StoreAdapter } from "../../contracts/adapter.ts";
import { refuseUrl } from "../../core/url.ts";
import { beside, end, guardedBySslmode, serverUrl } from "../kit/describe.ts";
import { later } from "../kit/pool.ts";
import { openPool, type MysqlConnection } from "./driver.ts";
import { rules } from "./examine.ts";
import { mysql } from "./index.ts";
import { starter } from "./starter.ts";
import { onPool } from "./pool.ts";
import { fill } from "./values.ts";

const runPool = { connections: 4, connectTimeoutMs: 5_000 };

export const mysqlAdapter: StoreAdapter = {
  name: "MySQL and MariaDB",
  schemes: ["mysql", "mariadb"],
  example: "mysql://user:password@host:3306/database",
  server: { port: 3306, ...guardedBySslmode() },
  rules,
  starter,
  noTail: "this version cannot follow the binary log: use --mode poll",
  open(given, _, { listen, ...placing }) {
    if (listen === true) return refuseUrl(given, "has nothing like PostgreSQL's LISTEN: leave listen out, and relays poll");
    const url = serverUrl(given);
    const pool = later(() => openPool({ url, connections: 1, connectTimeoutMs: 10_000 }), end);
    return beside(mysql({ url, ...placing }), pool);
  },
  /** Tables whose names begin with the run's. */
  openRun(given, run, placing = {}) {
    const url = serverUrl(given);
    const { listen: _, ...kept } = placing;
    const names = { outbox: `${run}_outbox`, inbox: `${run}_inbox`, events: `${run}_outbox_events`, prefix: `${run}_` };
    // A server that has gone silent must not keep a run waiting.
    const store = mysql({ url, ...kept, names, ...runPool, statementTimeoutMs: 10_000 });
    const pool = later(() => openPool({ url, ...runPool }), end);
    const at = { place: "the MySQL database", patienceMs: 60_000 };
    const once = async <T>(work: (ask: Ask) => Promise<T>): Promise<T> =>
      onPool(await pool.get(), at, (connection) => work(within(connection)), true);
    return {
      ...beside(store, pool),
      dialect: {
        key: "varchar(160) CHARACTER SET ascii COLLATE ascii_bin",
        position: "position bigint AUTO_INCREMENT PRIMARY KEY",
        table: "ENGINE=InnoDB",
      },
      within,
      ask: (sql, values) => once((ask) => ask(sql, values)),
      table: (name) => `\`${run}_${name}\``,
      remove: () =>
        once(async (ask) => {
          const found = await ask(
            "SELECT TABLE_NAME AS name, TABLE_TYPE AS kind FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, ?) = ?",
            [run.length + 1, `${run}_`],
          );
          for (const { name, kind } of found) await ask(`DROP ${kind === "VIEW" ? "VIEW" : "TABLE"} IF EXISTS \`${String(name)}\``);
        }),
    };
  },
};

function within(tx: unknown): Ask {
  const connection = tx as MysqlConnection;
  return async (sql, values = []) => {
    const [rows] = await connection.query({ sql: fill(sql, values), timeout: 60_000 });
    return Array.isArray(rows) ? (rows as SqlRow[]) : [];
  };
}
