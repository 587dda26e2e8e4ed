import mysql from "mysql2/promise";
import { startMariadb } from "./mariadb.ts";
import type { Server } from "./server.ts";

export interface MariadbStandby extends Server {
  /** It no longer follows, and takes writes. The old primary is not told. */
  promote(): Promise<void>;
}

/** What a server that others follow must be started with; they follow it from its first statement on. */
export const followed = { "server-id": 1, "log-bin": "log", "binlog-format": "ROW", "sync-binlog": 1 } as const;

/** A server that follows the one on this port, which was started with `followed`, asynchronously. */
export async function startMariadbStandby(port: number): Promise<MariadbStandby> {
  const server = await startMariadb({ settings: { ...followed, "server-id": 2, "log-slave-updates": 1 } });
  const say = async (...statements: readonly string[]): Promise<void> => {
    const connection = await mysql.createConnection(server.url());
    try {
      for (const statement of statements) await connection.query(statement);
    } finally {
      await connection.end();
    }
  };
  await say(
    `CHANGE MASTER TO MASTER_HOST = '127.0.0.1', MASTER_PORT = ${port}, MASTER_USER = 'root', MASTER_CONNECT_RETRY = 1,
     MASTER_HEARTBEAT_PERIOD = 1, MASTER_USE_GTID = slave_pos`,
    "START SLAVE",
    "SET GLOBAL read_only = 1",
  );
  return Object.assign(server, { promote: () => say("STOP SLAVE", "RESET SLAVE ALL", "SET GLOBAL read_only = 0") });
}
