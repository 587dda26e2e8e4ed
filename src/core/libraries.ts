import { readSafely, WaybillError } from "./errors.ts";

/** The libraries of waybill/handles, by properties of their databases and transactions. Knex comes first: it has all that Drizzle has. */
const libraries: readonly (readonly [name: string, handle: string, marks: readonly (readonly string[])[]])[] = [
  ["Knex", "fromKnex", [["raw", "select", "insert"]]],
  ["Drizzle", "fromDrizzle", [["select", "insert", "transaction"]]],
  ["Kysely", "fromKysely", [["selectFrom", "insertInto"]]],
  ["Prisma", "fromPrisma", [["$queryRawUnsafe"]]],
  ["TypeORM", "fromTypeorm", [["getRepository", "transaction"]]],
  ["MikroORM", "fromMikroOrm", [["getTransactionContext", "isInTransaction"]]],
  [
    "Sequelize",
    "fromSequelize",
    [
      ["getQueryInterface", "transaction"],
      ["sequelize", "commit", "rollback"],
    ],
  ],
  [
    "postgres.js",
    "fromPostgresJs",
    [
      ["unsafe", "begin"],
      ["unsafe", "savepoint"],
    ],
  ],
];

/**
 * Refuses an object of a library whose handle was forgotten. Called by stores that only know their database's own client: several
 * libraries have a `query` like that client's, with another meaning.
 */
export function refuseLibrary(given: unknown): void {
  if ((typeof given !== "object" && typeof given !== "function") || given === null) return;
  const has = (mark: string): boolean => readSafely(() => (given as Readonly<Record<string, unknown>>)[mark] !== undefined, false);
  const found = libraries.find(([, , marks]) => marks.some((each) => each.every(has)));
  if (found === undefined) return;
  const [name, handle] = found;
  throw new WaybillError(
    "INVALID_OPTION",
    `this is ${name}'s, and createOutbox was given no handle for it: createOutbox({ store, tx: ${handle} }), with ${handle} from waybill/handles`,
  );
}
