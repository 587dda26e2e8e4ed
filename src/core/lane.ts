/** A constant of the schema: aggregates fall into this many hash slots, and relays share the slots. */
export const LANES = 64;

/**
 * The lane of an aggregate on SQLite and in memory: FNV-1a over the UTF-8 bytes of type, NUL, id. PostgreSQL, MySQL and MariaDB
 * compute another number in SQL, which the column `lane` shows.
 */
export function laneOf(aggregateType: string, aggregateId: string): number {
  let hash = 0x811c9dc5;
  for (const byte of Buffer.from(`${aggregateType}\0${aggregateId}`, "utf8")) {
    hash = Math.imul(hash ^ byte, 0x01000193);
  }
  // The low bits of FNV-1a alone are weak; folding the high half in spreads short ids evenly.
  return ((hash ^ (hash >>> 16)) >>> 0) % LANES;
}
