import type { Clock } from "../../core/clock.ts";
import { createConnection, type Statements } from "../../drivers/sqlite/connection.ts";
import type { OpenSqlite } from "../../drivers/sqlite/driver.ts";
import { migrate } from "./schema.ts";

/** The file, with its tables in place before the first use. */
export interface Log {
  open(): Promise<void>;
  /** Never takes a write lock, and does not wait for a `write` of this process. */
  read<T>(work: (statements: Statements) => T): Promise<T>;
  write<T>(work: (statements: Statements) => T): Promise<T>;
  close(): Promise<void>;
}

interface LogOptions {
  readonly path: string;
  readonly open?: OpenSqlite | undefined;
  readonly clock: Clock;
  readonly lockTimeoutMs: number;
}

export function createLog(options: LogOptions): Log {
  const writer = createConnection(options);
  // A second connection: otherwise a publish that waits for another process's lock would keep readers waiting too.
  const reader = createConnection(options);
  let opened: Promise<void> | null = null;
  const open = (): Promise<void> =>
    (opened ??= migrate(writer, options.path, options.clock).catch((error: unknown) => {
      opened = null;
      throw error;
    }));
  return {
    open,
    read: (work) => open().then(() => reader.read(work)),
    write: (work) => open().then(() => writer.write(work)),
    async close() {
      await reader.close();
      await writer.close();
    },
  };
}
