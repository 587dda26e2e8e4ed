import type { MysqlRow, MysqlSession } from "./connection.ts";
import { errnoOf } from "./driver.ts";

/** How many rows are read with their payloads' lengths in one statement. */
export interface ReadPace {
  /** Reads the first of `seqs`, as many as one statement takes. `count` says how many those were. */
  read(
    session: Pick<MysqlSession, "run" | "server">,
    seqs: readonly bigint[],
    sql: (some: readonly bigint[]) => string,
  ): Promise<{ readonly rows: readonly MysqlRow[]; readonly count: number }>;
  /** Reports that `count` rows took `bytes` bytes, where a window has room for `room` bytes. */
  learn(count: number, bytes: number, room: number): void;
}

const first = 16;
/** A statement over several rows that takes longer has met large ones, and is not worth waiting for. */
const mostMs = 1_000;
/** The statement exceeded its time limit: MariaDB's error, and MySQL's. */
const late = [1969, 3024];

/**
 * InnoDB reads a whole payload to find its length. A statement over 500 rows of 8 MiB would read 4 GB before the claim knows that one of
 * them fills its window. So the next statement reads as many rows as would fit into a window if they were like those before. The server
 * ends a statement that meets larger ones after a second.
 */
export function createPace(): ReadPace {
  let rows = first;
  return {
    async read(session, seqs, sql) {
      for (;;) {
        const some = seqs.slice(0, rows);
        try {
          return {
            rows: await session.run(some.length > 1 ? withinTime(sql(some), session.server.mariadb) : sql(some)),
            count: some.length,
          };
        } catch (error) {
          if (some.length <= 1 || !late.includes(errnoOf(error) ?? 0)) throw error;
          rows = Math.max(1, Math.floor(some.length / 8));
        }
      }
    },
    learn(count, bytes, room) {
      const fit = bytes === 0 ? Infinity : Math.floor((room * count) / bytes);
      rows = Math.max(1, Math.min(fit, Math.max(rows, first) * 4, 10_000));
    },
  };
}

const withinTime = (select: string, mariadb: boolean): string =>
  mariadb
    ? `SET STATEMENT max_statement_time = ${mostMs / 1_000} FOR ${select}`
    : select.replace("SELECT", `SELECT /*+ MAX_EXECUTION_TIME(${mostMs}) */`);
