import type { Clock } from "./clock.ts";
import type { Random } from "./random.ts";

/** Ids are a port too; the default is UUIDv7, so that ids of one process sort by time. */
export type NewId = () => string;

export function uuidv7(clock: Clock, random: Random): NewId {
  let lastMs = 0;
  let counter = 0;
  return () => {
    const now = Math.floor(clock.now());
    // Within one millisecond (or when the wall clock steps back) a 12-bit counter keeps ids ascending.
    if (now > lastMs) {
      lastMs = now;
      counter = Math.floor(random.next() * 0x400);
    } else if (++counter > 0xfff) {
      lastMs += 1;
      counter = 0;
    }
    const hex = lastMs.toString(16).padStart(12, "0");
    const tail = random.bytes(8);
    tail[0] = (tail[0]! & 0x3f) | 0x80;
    const rest = Buffer.from(tail).toString("hex");
    const version = (0x7000 | counter).toString(16);
    return `${hex.slice(0, 8)}-${hex.slice(8)}-${version}-${rest.slice(0, 4)}-${rest.slice(4)}`;
  };
}

const uuid = /^[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}$/i;
const ulid = /^[0-7][0-9A-HJKMNP-TV-Z]{25}$/i;

/** One spelling per id, so that upper and lower case name the same event. Null when the id is neither a UUID nor a ULID. */
export function canonicalId(id: string): string | null {
  if (uuid.test(id)) return id.toLowerCase();
  return ulid.test(id) ? id.toUpperCase() : null;
}
