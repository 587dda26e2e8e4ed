import { causesOf } from "../../core/causes.ts";

export type Rows = readonly Readonly<Record<string, unknown>>[];

/** The rows in a client's answer: `{ rows }` (pg), `[rows, fields]` (mysql2), or the rows themselves; none for a statement without any. */
export function rowsOf(answer: unknown): Rows {
  if (isObject(answer) && Array.isArray(answer["rows"])) return answer["rows"] as Rows;
  if (!Array.isArray(answer)) return [];
  const [first] = answer as unknown[];
  if (Array.isArray(first)) return first as Rows;
  return isObject(first) && "affectedRows" in first ? [] : (answer as Rows);
}

/** Stores judge errors by the database client's own error. Libraries wrap it, some with the values of the statement in the message. */
export async function unwrapped<T>(answer: PromiseLike<T>): Promise<T> {
  try {
    return await answer;
  } catch (error) {
    throw causesOf(error).findLast((cause) => cause instanceof Error) ?? error;
  }
}

function isObject(value: unknown): value is Record<string, unknown> {
  return typeof value === "object" && value !== null;
}
