import { WaybillError } from "../../core/errors.ts";

/** What an application's classes of Kysely were found to be; bundles may have several. */
const found = new WeakMap<object, boolean | Promise<boolean>>();

interface Instance {
  transaction(): { execute(work: (tx: { executeQuery(query: object): Promise<unknown> }) => Promise<void>): Promise<void> };
}
type Class = new (config: object) => Instance;

/** Before 0.28.11, Kysely's transactions do not know that they have ended, and no driver tells for all of them. */
export async function refuseOld(given: object): Promise<void> {
  const kysely = classOf(given);
  if (kysely === null) return;
  let fits = found.get(kysely);
  if (fits === undefined) found.set(kysely, (fits = knowsOfItsEnd(kysely).catch(() => true))); // one that cannot be tried is not refused
  if (typeof fits !== "boolean") found.set(kysely, (fits = await fits));
  if (!fits)
    throw new WaybillError(
      "DRIVER_UNFIT",
      "this version of kysely is older than 0.28.11: its transactions do not know that they have ended. Use 0.28.11 or later, or the handle of the driver under it",
    );
}

/** Whether an instance of it, or of one of its subclasses, was judged before, and may be used. */
export const isKnown = (given: object): boolean => found.get(classOf(given) ?? given) === true;

/** `Kysely` itself: the class that all its transactions and databases have in common. */
function classOf(given: object): Class | null {
  let own: object | null = null;
  for (let at: object | null = Object.getPrototypeOf(given) as object | null; at !== null; at = Object.getPrototypeOf(at) as object | null)
    if (Object.hasOwn(at, "transaction")) own = at;
  return own === null ? null : (own.constructor as Class);
}

/** Nothing else tells the versions apart. So one transaction begins and ends on a database that is not there, and is then used. */
async function knowsOfItsEnd(kysely: Class): Promise<boolean> {
  const nothing = async (): Promise<void> => undefined;
  const rows = async (): Promise<object> => ({ rows: [] });
  const ends = { beginTransaction: nothing, commitTransaction: nothing, rollbackTransaction: nothing };
  const driver = { init: nothing, acquireConnection: async () => ({ executeQuery: rows }), releaseConnection: nothing, ...ends };
  const dialect = { createDriver: () => driver, createAdapter: () => ({}), createQueryCompiler: () => ({}) };
  let late = async (): Promise<unknown> => undefined;
  const query = { sql: "SELECT 1", parameters: [], query: { kind: "RawNode", sqlFragments: ["SELECT 1"], parameters: [] } };
  await new kysely({ dialect }).transaction().execute(async (tx) => {
    late = () => tx.executeQuery({ ...query, queryId: { queryId: "waybill" } });
  });
  return late().then(
    () => false,
    () => true,
  );
}
