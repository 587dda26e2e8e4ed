import { readSafely } from "./errors.ts";

const inside = ["cause", "driverError", "parent", "original", "previous", "meta", "driverAdapterError"];

/** Fields in which client libraries describe an error. Callers read them without a guard. */
const told = ["message", "code", "errno", "severity", "sqlState", "state", "originalCode", "fatal"];

/** An error and the errors that libraries wrapped inside it, from the outside in. Errors that throw when they are read are left out. */
export function causesOf(error: unknown): readonly object[] {
  const found: object[] = [];
  const look = (value: unknown): void => {
    if (typeof value !== "object" || value === null || found.includes(value) || found.length === 20) return;
    const of = value as Readonly<Record<string, unknown>>;
    const read = readSafely(() => [...inside, ...told].map((name) => of[name]), null);
    if (read === null) return;
    found.push(value);
    for (const one of read.slice(0, inside.length)) look(one);
  };
  look(error);
  return found;
}

/** The SQLSTATE of an error that a server sent, where `pg`, postgres.js, mysql2 and Prisma have it; or null. */
export function sqlStateOf(error: object): string | null {
  const { code, severity, sqlState, state, originalCode } = error as Readonly<Record<string, unknown>>;
  const found = sqlState ?? state ?? originalCode ?? (severity === undefined ? null : code);
  // 45 and three digits are error numbers of the mariadb connector, which look like a SQLSTATE.
  return typeof found === "string" && /^(?!45)[0-9A-Z]{5}$/.test(found) ? found : null;
}
