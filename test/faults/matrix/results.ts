import { createHash } from "node:crypto";
import { existsSync, readdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import type { Pair } from "./pairs.ts";
import type { Row } from "./row.ts";
import type { Result } from "./stage.ts";

/** Not what a row does, but which rows are played and what becomes of their results. */
const apart = ["index.ts", "results.ts"];

/** Of the code that is tried, and of what tries it: a result of another hash says nothing of these. */
export function hashOf(root: string): string {
  const hash = createHash("sha256");
  const add = (folder: string, names: readonly string[]): void => {
    for (const name of [...names].sort()) hash.update(`${folder}/${name}\0`).update(readFileSync(join(root, folder, name)));
  };
  const files = (folder: string): readonly string[] =>
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).filter((name) => /(?<!\.test)\.ts$/.test(name));
  for (const folder of ["src", "test/servers", "test/brokers", "test/support"]) add(folder, files(folder));
  add("scripts", ["servers.mjs"]);
  add(
    "test/faults/matrix",
    files("test/faults/matrix").filter((name) => !apart.includes(name)),
  );
  return hash.digest("hex").slice(0, 12);
}

type Place = Pair & { readonly row: number };
const placeOf = ({ row, store, broker }: Place): string => `${row}-${store}-${broker}`;
const nameOf = ({ row, store, broker }: Place): string => `${row} on ${store} + ${broker}`;

/** The results in a folder. Those of another hash are not seen. */
interface Results {
  get(place: Place): Result | null;
  /** What did not hold before is told with what is put in its place. */
  put(result: Result): void;
}

/** Why it could not be, or what did not hold. */
export const whyOf = ({ cannot, failures }: Result): string =>
  cannot ?? failures.map(({ invariant, verdict, why }) => `${invariant} ${verdict}: ${why}`).join(" | ");

/** All runs of a place that did not hold, up to this one. */
const failuresOf = (result: Result | null): NonNullable<Result["before"]> => [
  ...(result?.before ?? []),
  ...(result === null || result.held || result.cannot !== null ? [] : [{ seed: result.seed, why: whyOf(result) }]),
];

export function resultsIn(folder: string, hash: string): Results {
  const fileOf = (place: Place): string => join(folder, `${placeOf(place)}.json`);
  const get = (place: Place): Result | null => {
    if (!existsSync(fileOf(place))) return null;
    const result = JSON.parse(readFileSync(fileOf(place), "utf8")) as Result;
    return result.hash === hash ? result : null;
  };
  return {
    get,
    put(result) {
      const before = failuresOf(get(result));
      const kept = { ...result, ...(before.length === 0 ? {} : { before }), hash };
      writeFileSync(fileOf(result), `${JSON.stringify(kept, null, 2)}\n`);
    },
  };
}

export const placesOf = (rows: readonly Row[]): readonly Place[] =>
  rows.flatMap(({ number: row, pairs }) => pairs.map((pair) => ({ row, ...pair })));

/** Every row on every pair of its own that no result is of. */
export function missingIn(rows: readonly Row[], results: readonly Place[]): readonly string[] {
  const there = new Set(results.map(placeOf));
  return placesOf(rows).flatMap((place) => (there.has(placeOf(place)) ? [] : [nameOf(place)]));
}

interface Gathered {
  readonly all: readonly Result[] | null;
  readonly missing: readonly string[];
  /** Those of which an earlier run of the same code did not hold. */
  readonly unsteady: readonly string[];
}

/** All results of the matrix, in order, without what is only of use on this machine; `all` is null while some are missing or unsteady. */
export function evidenceOf(rows: readonly Row[], results: Pick<Results, "get">): Gathered {
  const found = placesOf(rows).flatMap((place) => results.get(place) ?? []);
  const missing = missingIn(rows, found);
  const unsteady = found.flatMap((result) => (result.before ?? []).map(({ seed, why }) => `${nameOf(result)} with seed ${seed}: ${why}`));
  if (missing.length + unsteady.length > 0) return { all: null, missing, unsteady };
  const sorted = [...found].sort((a, b) => a.row - b.row || a.store.localeCompare(b.store) || a.broker.localeCompare(b.broker));
  const all = sorted.map(({ notes, ...rest }) => ({ ...rest, notes: notes.filter((note) => !note.startsWith("histories")) }));
  return { all, missing, unsteady };
}
