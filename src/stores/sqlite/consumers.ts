import type { Consumers } from "../../contracts/consumers.ts";
import type { Connection } from "../../drivers/sqlite/connection.ts";
import { consumersOf, countedMarks } from "../kit/consumers.ts";
import { parkedVersion } from "../kit/letters.ts";
import type { Clock } from "../../core/clock.ts";
import { cells, countOf, foreign, iso } from "./rows.ts";

export function createConsumers(connection: Connection, clock: Clock): Consumers {
  return {
    look: (consumer) =>
      connection.read((statements) => {
        const [where, values] = consumer === undefined ? ["true", []] : ["consumer = ?", [consumer]];
        const seats = statements.all(
          `SELECT ${foreign("consumer")} AS consumer, ${foreign("topic")} AS topic, owner <> '' AND expires_at > ? AS running,
             strftime('%Y-%m-%dT%H:%M:%fZ', expires_at, printf('-%f seconds', ttl_ms / 1000)) AS seen_at
           FROM waybill_seats WHERE ${where} ORDER BY 1, 2`,
          [iso(clock.now()), ...values],
        );
        const letters = statements.all(
          `SELECT ${foreign("consumer")} AS consumer, ${foreign("topic")} AS topic, count(*) AS letters, count(redriven_at) AS redriven,
             min(${foreign("parked_at")}) AS oldest
           FROM waybill_letters WHERE ${where} GROUP BY waybill_letters.consumer, waybill_letters.topic ORDER BY 1, 2`,
          values,
        );
        const retrying = statements.all(
          `SELECT ${foreign("consumer")} AS consumer, count(*) AS events, max(${countOf("attempts")}) AS attempts,
             max(${foreign("failed_at")}) AS failed_at
           FROM waybill_attempts WHERE ${where} GROUP BY waybill_attempts.consumer`,
          values,
        );
        const marks =
          consumer === undefined
            ? undefined
            : statements.get(
                `SELECT count(*) AS n FROM (SELECT 1 FROM inbox WHERE ${where} AND handler_version <> ${parkedVersion} LIMIT ${countedMarks})`,
                values,
              );
        return consumersOf(consumer, { seats, letters, retrying, handled: marks === undefined ? null : Number(marks["n"]) }, cells);
      }),
  };
}
