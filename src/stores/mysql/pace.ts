import type { MysqlRow, MysqlSession } from "./connection.ts";
import { errnoOf } from "./driver.ts";

/** How many rows are read with their payloads' lengths in one statement. */
export interface ReadPace {
  /** As many of the first as go at once. */
  read(
    session: Pick<MysqlSession, "run" | "server">,
    seqs: readonly bigint[],
    sql: (some: readonly bigint[]) => string,
  ): Promise<{ readonly rows: readonly MysqlRow[]; readonly count: number }>;
  /** So many rows took so many bytes, and a window has room for `room`. */
  learn(count: number, bytes: number, room: number): void;
}

const first = 16;
/** A statement over several rows that takes longer has met large ones; what it has read so far is not worth waiting for the rest. */
const mostMs = 1_000;
/** Killed for its time: by MariaDB, by MySQL. */
const late = [1969, 3024];

/**
 * InnoDB reads the whole of a payload to tell its length. A statement over 500 rows of 8 MiB would read 4 GB before the claim knows that
 * one of them fills its window. So the next statement reads as many rows as a window would hold of those before, and a statement that
 * meets larger ones is ended by the server after a second.
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
