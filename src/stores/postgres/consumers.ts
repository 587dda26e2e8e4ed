import type { Consumers } from "../../contracts/consumers.ts";
import { consumersOf, countedMarks } from "../kit/consumers.ts";
import { parkedVersion } from "../kit/letters.ts";
import type { Connection } from "./connection.ts";
import type { Names } from "./names.ts";
import { cells, ms, storable } from "./rows.ts";

export function createConsumers({ run }: Connection, n: Names): Consumers {
  return {
    async look(consumer) {
      const [where, values] = consumer === undefined ? ["true", []] : ["t.consumer = $1", [storable(consumer)]];
      const seats = await run(
        `SELECT t.consumer, t.topic, t.owner <> '' AND t.expires_at > clock_timestamp() AS running,
           ${ms("(t.expires_at - t.ttl_ms * interval '1 millisecond')")} AS seen_at
         FROM ${n.seats} t WHERE ${where} ORDER BY 1, 2`,
        values,
      );
      const letters = await run(
        `SELECT t.consumer, t.topic, count(*) AS letters, count(t.redriven_at) AS redriven, ${ms("min(t.parked_at)")} AS oldest
         FROM ${n.letters} t WHERE ${where} GROUP BY 1, 2 ORDER BY 1, 2`,
        values,
      );
      const retrying = await run(
        `SELECT t.consumer, count(*) AS events, max(t.attempts) AS attempts, ${ms("max(t.failed_at)")} AS failed_at
         FROM ${n.attempts} t WHERE ${where} GROUP BY 1`,
        values,
      );
      const [marks] =
        consumer === undefined
          ? []
          : await run(
              `SELECT count(*) AS n FROM (SELECT 1 FROM ${n.inbox} t WHERE ${where} AND t.handler_version <> ${parkedVersion} LIMIT ${countedMarks}) m`,
              values,
            );
      return consumersOf(consumer, { seats, letters, retrying, handled: marks === undefined ? null : Number(marks["n"]) }, cells);
    },
  };
}
