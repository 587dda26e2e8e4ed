import type { Consumers } from "../../contracts/consumers.ts";
import { consumersOf, countedMarks } from "../kit/consumers.ts";
import { parkedVersion } from "../kit/letters.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { cells, numberOf } from "./rows.ts";

export function createConsumers({ run }: Connection, n: Names): Consumers {
  return {
    async look(consumer) {
      const where = consumer === undefined ? "TRUE" : "t.consumer = ?";
      const seats = await run(
        `SELECT CAST(t.consumer AS BINARY) AS consumer, CAST(t.topic AS BINARY) AS topic, t.owner <> '' AND t.expires_at > UTC_TIMESTAMP(6) AS running,
           t.expires_at - INTERVAL COALESCE(t.ttl_ms, 0) * 1000 MICROSECOND AS seen_at
         FROM ${n.seats} t WHERE ${where} ORDER BY t.consumer, t.topic`,
        consumer === undefined ? [] : [consumer],
      );
      const letters = await run(
        `SELECT t.consumer, t.topic, COUNT(*) AS letters, COUNT(t.redriven_at) AS redriven, MIN(t.parked_at) AS oldest
         FROM ${n.letters} t WHERE ${where} GROUP BY t.consumer, t.topic ORDER BY t.consumer, t.topic`,
        consumer === undefined ? [] : [Buffer.from(consumer)],
      );
      const values = consumer === undefined ? [] : [consumer];
      const retrying = await run(
        `SELECT CAST(t.consumer AS BINARY) AS consumer, COUNT(*) AS events, MAX(t.attempts) AS attempts, MAX(t.failed_at) AS failed_at
         FROM ${n.attempts} t WHERE ${where} GROUP BY t.consumer`,
        values,
      );
      const [marks] =
        consumer === undefined
          ? []
          : await run(
              `SELECT COUNT(*) AS n FROM (SELECT 1 FROM ${n.inbox} t WHERE ${where} AND t.handler_version <> ${parkedVersion} LIMIT ${countedMarks}) m`,
              values,
            );
      return consumersOf(consumer, { seats, letters, retrying, handled: marks === undefined ? null : numberOf(marks, "n") }, cells);
    },
  };
}
