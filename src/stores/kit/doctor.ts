import type { Rule } from "../../contracts/doctor.ts";
import type { Clock } from "../../core/clock.ts";
import { inWords } from "../../core/in-words.ts";
import { LANES } from "../../core/lane.ts";
import type { TablesFound } from "../../core/tables.ts";

/** The server's clock, read between two readings of our own. */
export interface ClockSighting {
  readonly beforeMs: number;
  readonly serverMs: number;
  readonly afterMs: number;
}

const driftMs = 2_000;

export async function sightClock(clock: Clock, read: () => Promise<number>): Promise<ClockSighting> {
  const beforeMs = clock.now();
  const serverMs = await read();
  return { beforeMs, serverMs, afterMs: clock.now() };
}

/** Null if this user may not read it. */
export const unlessDenied = <T>(read: () => Promise<T>, isDenied: (error: unknown) => boolean): Promise<T | null> =>
  read().catch((error: unknown) => {
    if (isDenied(error)) return null;
    throw error;
  });

export const clockRule: Rule<{ readonly clock: ClockSighting }> = {
  setting: "clock",
  badWhen: "more than two seconds from this machine's",
  breaks: "V",
  remedy:
    "let both machines follow one time server. Leases do not suffer: a relay counts another's lease by its own monotonic clock once it has seen it renewed",
  look({ clock: { beforeMs, serverMs, afterMs } }, { good, bad }) {
    const half = (afterMs - beforeMs) / 2;
    const ahead = Math.round(serverMs - beforeMs - half);
    const value = `${inWords(Math.abs(ahead))} ${ahead < 0 ? "behind" : "ahead"}`;
    // Only the part that the round trip cannot explain counts.
    if (Math.abs(ahead) - half <= driftMs) return good(value, "The database and this machine agree on the time.");
    const moment = `goes out that much too ${ahead < 0 ? "late" : "early"}, and ages that people compare with their own clock are wrong`;
    return bad(value, `An event that a service delays until a moment of its own clock ${moment}`);
  },
};

const unread = "This user may not read Waybill's tables: run doctor as the user that relays have.";

/** `schema` is null if this user may not read it. `known` has the fingerprint of each version. */
export const tablesRule = (known: readonly string[]): Rule<{ readonly schema: TablesFound | null }> => ({
  setting: "schema version",
  badWhen: "no tables, older or newer ones, or those of an unreleased build",
  breaks: "L",
  remedy: "run `waybill migrate`",
  look({ schema }, { good, bad, unknown }) {
    if (schema === null) return unknown(null, unread);
    const { version, fingerprint } = schema;
    const wanted = known.length;
    if (isOurs(schema, known)) return good(String(version), "The tables are those of this version.");
    if (version > wanted && fingerprint !== null)
      return bad(String(version), `This code knows version ${wanted} at most, and refuses to work with newer tables`, {
        remedy: "upgrade waybill here",
      });
    if (version > 0 && fingerprint !== known[version - 1])
      return bad(String(version), "An unreleased build made these tables, and this code refuses to work with them", {
        remedy: "let the build that made them publish what waits, then begin with new tables, or drop these and run `waybill migrate`",
      });
    return bad(version === 0 ? "none" : String(version), `This code needs version ${wanted}, and no relay starts before`);
  },
});

/** The tables are those that this code makes. */
export const isOurs = ({ version, fingerprint }: TablesFound, known: readonly string[]): boolean =>
  version === known.length && fingerprint === known.at(-1);

/** A database object that migrate creates. */
export interface Thing {
  readonly kind: "table" | "index" | "unique index" | "trigger" | "function" | "sequence" | "view";
  readonly name: string;
}

const broken: Readonly<Record<Thing["kind"], string>> = {
  table: "L",
  function: "L",
  sequence: "O",
  "unique index": "E",
  trigger: "D",
  index: "I",
  view: "V",
};

export interface StoredThings {
  readonly expected: readonly Thing[];
  /** As `kind name`. */
  readonly present: readonly string[];
}

export const objectsRule: Rule<StoredThings> = {
  setting: "objects",
  badWhen: "a table, index, function, trigger or the view was dropped, switched off or is not valid",
  breaks: "LOEDIV",
  remedy: "recreate it as `waybill migrate --print` shows it",
  look({ expected, present }, { good, bad }) {
    const missing = expected.filter(({ kind, name }) => !present.includes(`${kind} ${name}`));
    if (missing.length === 0) return good(`${expected.length} of ${expected.length}`, "Everything that migrate makes is there.");
    const lost = "without an index one aggregate that waits slows all others down, without a trigger a used idempotency key adds again";
    return bad(
      `missing: ${missing.map(({ kind, name }) => `${kind} ${name}`).join(", ")}`,
      `The database lacks what migrate made, and ${lost}`,
      { breaks: lettersOf(missing.map(({ kind }) => broken[kind])) },
    );
  },
};

/** In the order in which the promises are listed. */
export const lettersOf = (broken: readonly string[]): string => [..."LPOEDIV"].filter((letter) => broken.includes(letter)).join("");

export const lanesRule: Rule<{ readonly lanes: number | null }> = {
  setting: "lanes",
  badWhen: "a lane has no row",
  breaks: "L",
  remedy: `insert rows for the lanes 0 to ${LANES - 1}`,
  look({ lanes }, { good, bad, unknown }) {
    if (lanes === null) return unknown(null, unread);
    if (lanes === LANES) return good(String(lanes), "Every lane can be owned.");
    return bad(String(lanes), "Events of a lane without a row are never claimed");
  },
};

/** Rules about tables report nothing unless the tables have this code's version. */
export const ofTables = <T>(rules: readonly Rule<T>[]): readonly Rule<{ readonly tables: T | null }>[] =>
  rules.map((rule) => ({ ...rule, look: ({ tables }, say) => (tables === null ? [] : rule.look(tables, say)) }));
