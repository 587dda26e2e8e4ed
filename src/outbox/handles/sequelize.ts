import type { Begins } from "../../contracts/handle.ts";
import { lend } from "../../core/lend.ts";
import type { Method } from "./method.ts";
import { rewrite } from "./placeholders.ts";
import { type Begin, ended, handle, isMethod, noTransaction } from "./handle.ts";
import { unwrapped, type Rows } from "./result.ts";

/** A `Transaction`, from `sequelize.transaction(…)` with a callback or without. */
export interface SequelizeTransaction {
  commit(): Promise<void>;
  rollback(): Promise<void>;
  readonly afterCommit: Method;
}

export interface SequelizeDb {
  readonly transaction: Method;
  readonly getQueryInterface: Method;
}

interface SequelizeBegins extends Begins {
  readonly tx: this["db"] extends { readonly transaction: () => Promise<infer Tx> } ? Tx : never;
}

interface Inside {
  readonly sequelize?: { query(sql: string, options: object): PromiseLike<unknown> };
  /** "commit" or "rollback", once the transaction has begun to end. A nested transaction ends with its parent. */
  finished?: string;
  readonly parent?: Inside;
  /** Its nested transactions. */
  readonly savepoints?: readonly Inside[];
  connection?: unknown;
}

/** The transaction that `sequelize.transaction(…)` gives. */
export const fromSequelize = handle<SequelizeDb, SequelizeTransaction, SequelizeBegins>({
  name: "Sequelize",
  owns: ({ transaction, commit }) => isMethod(transaction) || isMethod(commit),
  open(transaction) {
    const { sequelize } = transaction as Inside;
    if (typeof sequelize?.query !== "function" || typeof transaction.commit !== "function")
      throw noTransaction("what was given is no transaction of Sequelize");
    if (hasEnded(transaction as Inside)) throw ended("Sequelize");
    return async (sql, values) => {
      // Sequelize returns rows on every database only with the type SELECT.
      const type = /^\s*(SELECT|WITH)\b|\bRETURNING\b/i.test(sql) ? "SELECT" : "RAW";
      const options = { type, transaction, raw: true };
      const asked = values.length === 0 ? sequelize.query(sql, options) : sequelize.query(bound(sql), { ...options, bind: values });
      const answer = await unwrapped(asked);
      return { rows: type === "SELECT" ? (answer as Rows) : [] };
    };
  },
  isInside: (db) => "commit" in db,
  lend: (tx) => lend(tx),
  async begin(db, work) {
    let begun: Inside = {};
    try {
      return await (db as unknown as Begin<SequelizeTransaction>).transaction(async (transaction) => {
        begun = transaction as Inside;
        try {
          return await work(transaction);
        } finally {
          for (const nested of nestedIn(begun)) nested.finished ??= "rollback";
        }
      });
    } finally {
      for (const each of [begun, ...nestedIn(begun)]) delete each.connection;
    }
  },
});

/**
 * Sequelize lets nested transactions go on, and begin, after the end of the one they are in: in whatever transaction its connection has
 * then. So they are ended with it, and lose the connection.
 */
const nestedIn = ({ savepoints = [] }: Inside): readonly Inside[] => savepoints.flatMap((nested) => [nested, ...nestedIn(nested)]);

const bound = (sql: string): string =>
  rewrite(
    sql,
    (number) => `$${number}`,
    (text) => text.replaceAll(/\B\$/g, "$$$$"),
  );

function hasEnded({ finished, parent }: Inside): boolean {
  return finished !== undefined || (parent !== undefined && hasEnded(parent));
}
