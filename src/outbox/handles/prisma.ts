import type { Begins } from "../../contracts/handle.ts";
import { sqlStateOf } from "../../core/causes.ts";
import { lend } from "../../core/lend.ts";
import type { GivenBy, Method } from "./method.ts";
import { ended, handle, isMethod, noTransaction } from "./handle.ts";
import { rowsOf } from "./result.ts";

/** The client that an interactive `prisma.$transaction(…)` gives to its callback. */
export interface PrismaTransaction {
  readonly $queryRawUnsafe: Method;
}

export interface PrismaDb extends PrismaTransaction {
  readonly $transaction: Method;
}

interface PrismaBegins extends Begins {
  readonly tx: this["db"] extends { readonly $transaction: infer M } ? GivenBy<M> : never;
}

interface Inside {
  $queryRawUnsafe(sql: string, ...values: readonly unknown[]): PromiseLike<unknown>;
  $transaction<T>(work: (tx: PrismaTransaction) => Promise<T>): Promise<T>;
}

/** The client that an interactive transaction of Prisma gives to its callback. */
export const fromPrisma = handle<PrismaDb, PrismaTransaction, PrismaBegins>({
  name: "Prisma",
  owns: ({ $queryRawUnsafe }) => isMethod($queryRawUnsafe),
  open(tx) {
    if (isClient(tx)) throw noTransaction("a Prisma client was given in place of the one that $transaction gives");
    return async (sql, values) => {
      try {
        return { rows: rowsOf(await (tx as unknown as Inside).$queryRawUnsafe(sql, ...values)) };
      } catch (error) {
        throw clientError(error);
      }
    };
  },
  isInside: (db) => !isClient(db),
  lend: (tx) => lend(tx),
  begin: (db, work) => (db as unknown as Inside).$transaction(work),
});

function isClient(client: PrismaTransaction): boolean {
  return typeof (client as { $connect?: unknown }).$connect === "function";
}

/** Prisma has the database's own code and message deep inside its error. This puts them where the databases' clients have them. */
function clientError(error: unknown): unknown {
  if (typeof error !== "object" || error === null) return error;
  const { code, meta } = error as { code?: unknown; meta?: { driverAdapterError?: { cause?: Record<string, unknown> } } };
  if (code === "P2028") return ended("Prisma");
  const told = meta?.driverAdapterError?.cause ?? {};
  const { originalCode, originalMessage } = told;
  if (typeof originalCode !== "string") return error;
  const number = Number(originalCode);
  return Object.assign(new Error(String(originalMessage), { cause: error }), {
    code: originalCode,
    severity: "ERROR",
    sqlState: sqlStateOf(told) ?? "HY000",
    ...(Number.isInteger(number) ? { errno: number, rawCode: number } : {}),
  });
}
