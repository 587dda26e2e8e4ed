import type { SqlTransaction } from "../../contracts/handle.ts";
import { WaybillError } from "../../core/errors.ts";
import { rewrite } from "./placeholders.ts";
import { rowsOf, unwrapped } from "./result.ts";

/** Statements through the `raw` of a Knex transaction, which takes question marks as placeholders for every database. */
export function raw(trx: object): SqlTransaction["query"] {
  const knex = trx as { raw(sql: string, values: readonly unknown[]): PromiseLike<unknown> };
  const ask: SqlTransaction["query"] = async (sql, values) => {
    try {
      return { rows: rowsOf(await unwrapped(knex.raw(sql, values))) };
    } catch (error) {
      throw inItsOwnWords(error, sql);
    }
  };
  return async (sql, values) => {
    if (!/\$1\b/.test(sql)) return ask(sql, values);
    const inOrder: unknown[] = [];
    const placeholder = (number: number): string => {
      inOrder.push(values[number - 1]);
      return "?";
    };
    return ask(rewrite(sql, placeholder, escaped), inOrder);
  };
}

function escaped(text: string): string {
  if (text.includes("\\?"))
    throw new WaybillError("UNSUPPORTED", 'Knex cannot carry a name in which "?" follows a backslash: choose another name');
  return text.replaceAll("?", "\\?");
}

/** Knex puts the statement with its values before the client's own message, so a payload would end up in every log. */
function inItsOwnWords(error: unknown, sql: string): unknown {
  if (!(error instanceof Error) || !error.message.startsWith(sql.slice(0, 10))) return error;
  error.message = error.message.slice(error.message.lastIndexOf(" - ") + 3);
  return error;
}
