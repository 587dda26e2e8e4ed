import type { OutboxWriter } from "../../contracts/outbox-store.ts";
import type { Clock } from "../../core/clock.ts";
import { WaybillError } from "../../core/errors.ts";
import type { Added, Row } from "../../core/event.ts";
import type { Database, MemoryTx } from "./database.ts";
import type { Tables } from "./tables.ts";

export function createWriter(tables: Tables, database: Database, clock: Clock): OutboxWriter<MemoryTx> {
  return {
    synchronous: true,
    append(tx, rows) {
      const changes = database.changesOf(tx);
      const keys = new Map<string, string>();
      const fresh = new Map<string, Row>();
      const added: Added[] = [];
      for (const row of rows) {
        const key = row.idempotencyKey;
        const first = key === null ? undefined : (tables.keys.get(key)?.id ?? changes.keys.get(key) ?? keys.get(key));
        if (first !== undefined) {
          added.push({ id: first, duplicate: true });
          continue;
        }
        if (tables.byId.has(row.id) || changes.ids.has(row.id) || fresh.has(row.id)) {
          throw new WaybillError(
            "INVALID_DRAFT",
            `an event with the id ${row.id} exists already: leave the id out, or use an idempotency key to add once`,
          );
        }
        if (key !== null) keys.set(key, row.id);
        fresh.set(row.id, copyOf(row));
        added.push({ id: row.id, duplicate: false });
      }
      // Nothing is kept of an append that was refused half-way.
      const createdAt = clock.now();
      for (const [id, row] of fresh) {
        changes.ids.add(id);
        changes.rows.push({ row, createdAt });
      }
      for (const [key, id] of keys) changes.keys.set(key, id);
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
