import { maxFields } from "./message.ts";
import type { Reply } from "./replies.ts";

/** What the scripts and commands answer. Null for an answer of another shape, which a wrong server may give. */

/** An entry as the fetch script answers it. */
export interface FetchedEntry {
  readonly id: string;
  /** Null when it is no longer in the stream. */
  readonly fields: readonly Buffer[] | Unfetched | null;
}

/** An entry with more than is read: see the fetch script. */
export interface Unfetched {
  readonly count: number;
  readonly bytes: number;
}

/** Nothing is new: the group was given everything up to `reached`. */
export interface Reached {
  readonly reached: string;
  /** Entries that were removed before the group was given them; null when their number is unknown. */
  readonly missed: number | null;
}

const entryId = /^\d{1,20}-\d{1,20}$/;

export const isEntryId = (reply: Reply | undefined): reply is Buffer =>
  Buffer.isBuffer(reply) && reply.length <= 41 && entryId.test(reply.toString("latin1"));

export const isCount = (reply: Reply | undefined): reply is number =>
  typeof reply === "number" && Number.isSafeInteger(reply) && reply >= 0;

export const textOf = (reply: Reply | undefined): string | null => (Buffer.isBuffer(reply) ? reply.toString() : null);

/** Pairs of a name and a value, such as the server says of a group. */
export function namedIn(reply: Reply | undefined): ReadonlyMap<string, Reply> | null {
  if (!isList(reply) || reply.length % 2 > 0) return null;
  const found = new Map<string, Reply>();
  for (let i = 0; i < reply.length; i += 2) {
    const name = textOf(reply[i]);
    if (name === null) return null;
    found.set(name, reply[i + 1]!);
  }
  return found;
}

export function fetchedIn(reply: Reply | undefined): readonly FetchedEntry[] | Reached | null {
  if (!isList(reply)) return null;
  const [reached, missed] = reply;
  if (isEntryId(reached)) {
    const known = reply.length === 1 || missed === null || isCount(missed);
    return known && reply.length <= 2 ? { reached: String(reached), missed: isCount(missed) ? missed : null } : null;
  }
  const entries = reply.map(entryIn);
  return entries.includes(null) ? null : (entries as readonly FetchedEntry[]);
}

function entryIn(reply: Reply): FetchedEntry | null {
  if (!isList(reply) || !isEntryId(reply[0])) return null;
  const [place, fields, bytes] = reply;
  const id = String(place);
  if (isCount(fields) && isCount(bytes)) return { id, fields: { count: fields, bytes } };
  if (reply.length > 2) return null;
  if (fields === null) return { id, fields: null };
  if (!isList(fields) || fields.length % 2 > 0 || fields.length > 2 * maxFields) return null;
  return fields.every((field) => Buffer.isBuffer(field)) ? { id, fields } : null;
}

export const isList = (reply: Reply | undefined): reply is readonly Reply[] => Array.isArray(reply);
