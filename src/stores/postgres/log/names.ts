import { createHash } from "node:crypto";
import type { Run } from "../connection.ts";
import type { Names } from "../names.ts";
import type { LoggedTable } from "./relation.ts";

export interface LogNames extends LoggedTable {
  /** Of the slot and of the publication. Nothing in it has to be quoted. */
  readonly name: string;
  /** Qualified and quoted. */
  readonly outbox: string;
}

/** A slot belongs to the whole server, so its name depends on the database too: two databases may each have an outbox of the same name. */
export async function logNames(run: Run, n: Names): Promise<LogNames> {
  const [row] = await run("SELECT quote_ident(current_database()) AS database");
  const hash = createHash("sha256").update(`${row!["database"]}.${n.outbox}`).digest("hex");
  return { name: `waybill_${hash.slice(0, 16)}`, outbox: n.outbox, schema: unquoted(n.schema), table: n.plain("outbox") };
}

const unquoted = (name: string): string => name.slice(1, -1).replaceAll('""', '"');
