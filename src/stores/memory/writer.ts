import type { OutboxWriter } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import type { Row } from "../../core/event.ts";
import { addedOnce, idTaken } from "../kit/writing.ts";
import type { Database, MemoryTx } from "./database.ts";
import type { Tables } from "./tables.ts";

export function createWriter(tables: Tables, database: Database, clock: Clock): OutboxWriter<MemoryTx> {
  return {
    synchronous: true,
    onEnd: () => true, // the database itself gives the hint when it commits
    append(tx, rows) {
      const changes = database.changesOf(tx);
      const used = new Map<string, string>();
      for (const { idempotencyKey: key } of rows) {
        const first = key === null ? undefined : (tables.keys.get(key)?.id ?? changes.keys.get(key));
        if (first !== undefined) used.set(key!, first);
      }
      const added = addedOnce(rows, used);
      const fresh = rows.filter((_, at) => !added[at]!.duplicate);
      // All ids are checked first: a refused append leaves nothing behind.
      const ids = new Set<string>();
      for (const { id } of fresh) {
        if (tables.byId.has(id) || changes.ids.has(id) || ids.has(id)) throw idTaken(id);
        ids.add(id);
      }
      const createdAt = clock.now();
      for (const row of fresh) {
        changes.ids.add(row.id);
        changes.rows.push({ row: copyOf(row), createdAt });
        if (row.idempotencyKey !== null) changes.keys.set(row.idempotencyKey, row.id);
      }
      return Promise.resolve(added);
    },
  };
}

/** The caller may go on using its buffers, dates and objects. */
function copyOf(row: Row): Row {
  return {
    ...row,
    payload: typeof row.payload === "string" ? row.payload : Uint8Array.from(row.payload),
    headers: { ...row.headers },
    availableAt: row.availableAt === null ? null : new Date(row.availableAt),
  };
}
