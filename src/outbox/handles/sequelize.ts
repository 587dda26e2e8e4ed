import type { Begins, Handle } from "../../contracts/handle.ts";
import type { Method } from "./method.ts";
import { rewrite } from "./placeholders.ts";
import { alreadyInside, ended, noTransaction } from "./refuse.ts";
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
  /** "commit" or "rollback", once it has begun to end; those that are inside another end with it. */
  readonly finished?: string;
  readonly parent?: Inside;
}

interface Begin {
  transaction<T>(work: (tx: SequelizeTransaction) => Promise<T>): Promise<T>;
}

/** The transaction that `sequelize.transaction(…)` gives. */
export const fromSequelize: Handle<SequelizeDb, SequelizeTransaction, SequelizeBegins> = Object.assign(
  (transaction: SequelizeTransaction) => {
    const { sequelize } = transaction as Inside;
    if (typeof sequelize?.query !== "function" || typeof transaction.commit !== "function")
      throw noTransaction("what was given is no transaction of Sequelize");
    if (hasEnded(transaction as Inside)) throw ended("Sequelize");
    return {
      async query(sql: string, values: unknown[]) {
        // Only asked for so does Sequelize give rows, whichever the database.
        const type = /^\s*(SELECT|WITH)\b|\bRETURNING\b/i.test(sql) ? "SELECT" : "RAW";
        const bound =
          values.length === 0
            ? sql
            : rewrite(
                sql,
                (number) => `$${number}`,
                (text) => text.replaceAll(/\B\$/g, "$$$$"),
              );
        const bind = values.length === 0 ? {} : { bind: values };
        const answer = await unwrapped(sequelize.query(bound, { ...bind, type, transaction, raw: true }));
        return { rows: type === "SELECT" ? (answer as Rows) : [] };
      },
    };
  },
  {
    async begin<T>(db: SequelizeDb, work: (tx: SequelizeTransaction) => Promise<T>): Promise<T> {
      if ("commit" in db) throw alreadyInside("Sequelize");
      return (db as Begin).transaction(work);
    },
  },
);

function hasEnded({ finished, parent }: Inside): boolean {
  return finished !== undefined || (parent !== undefined && hasEnded(parent));
}
