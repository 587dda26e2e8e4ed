import { bytesOf } from "../../drivers/sqlite/connection.ts";
import type { Log } from "./log.ts";

const batch = 2_000;

/**
 * Deletes messages that are older than `before` and that every known consumer of their topic has acknowledged. In a topic that no consumer
 * has received from, age alone decides. Records of skipped messages are deleted by age. Returns how many messages it deleted.
 */
export async function purge(log: Log, before: Date): Promise<number> {
  const limit = before.toISOString();
  // As bytes: a topic that another program wrote need not be valid text.
  const topics = await log.read((statements) =>
    statements.all("SELECT DISTINCT CAST(topic AS BLOB) AS topic FROM waybill_broker_messages"),
  );
  let purged = 0;
  for (const row of topics) {
    const topic = bytesOf(row["topic"]);
    for (let from = 0; ;) {
      // The floor is read under the same lock as the deletion, so that a consumer cannot become known in between.
      const step = await log.write((statements) => {
        const end = statements.get(chunk, [topic, from, topic, batch])?.["end"];
        if (end === undefined || end === null) return null;
        return { end: Number(end), deleted: statements.run(remove, [topic, from, Number(end), limit]) };
      });
      // Offsets rise with time unless a clock steps back, so a whole chunk with nothing old in it ends the search.
      if (step === null || step.deleted === 0) break;
      purged += step.deleted;
      from = step.end;
    }
  }
  return purged;
}

const chunk = `SELECT max("offset") AS "end" FROM (
  SELECT "offset" FROM waybill_broker_messages
  WHERE topic = CAST(? AS TEXT) AND "offset" > ? AND "offset" <= coalesce(
    (SELECT min(c."offset") FROM waybill_broker_consumers c WHERE c.topic = CAST(? AS TEXT)), 9223372036854775807)
  ORDER BY "offset" LIMIT ?)`;

const remove = `DELETE FROM waybill_broker_messages WHERE topic = CAST(? AS TEXT) AND "offset" > ? AND "offset" <= ? AND stored_at < ?`;
