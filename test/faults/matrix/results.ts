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
    readdirSync(join(root, folder), { recursive: true, encoding: "utf8" }).filter((name) => name.endsWith(".ts"));
  add("src", files("src"));
  add(
    "test/faults/matrix",
    files("test/faults/matrix").filter((name) => !apart.includes(name)),
  );
  return hash.digest("hex").slice(0, 12);
}

type Place = Pair & { readonly row: number };
const placeOf = ({ row, store, broker }: Place): string => `${row}-${store}-${broker}`;

/** The results in a folder. Those of another hash are not seen; of those that tell none, nobody knows. */
export interface Results {
  get(place: Place): Result | null;
  put(result: Result): void;
}

export function resultsIn(folder: string, hash: string): Results {
  const fileOf = (place: Place): string => join(folder, `${placeOf(place)}.json`);
  return {
    get(place) {
      if (!existsSync(fileOf(place))) return null;
      const result = JSON.parse(readFileSync(fileOf(place), "utf8")) as Result;
      return result.hash === undefined || result.hash === hash ? result : null;
    },
    put: (result) => writeFileSync(fileOf(result), `${JSON.stringify({ ...result, hash }, null, 2)}\n`),
  };
}

export const placesOf = (rows: readonly Row[]): readonly Place[] =>
  rows.flatMap(({ number: row, pairs }) => pairs.map((pair) => ({ row, ...pair })));

/** Every row on every pair of its own that no result is of. */
export function missingIn(rows: readonly Row[], results: readonly Place[]): readonly string[] {
  const there = new Set(results.map(placeOf));
  return placesOf(rows).flatMap((place) => (there.has(placeOf(place)) ? [] : [`${place.row} on ${place.store} + ${place.broker}`]));
}

/** All results of the matrix, in order, without what is only of use on this machine; `all` is null while some are missing. */
export function evidenceOf(
  rows: readonly Row[],
  results: Pick<Results, "get">,
): { readonly all: readonly Result[] | null; readonly missing: readonly string[] } {
  const found = placesOf(rows).flatMap((place) => results.get(place) ?? []);
  const missing = missingIn(rows, found);
  if (missing.length > 0) return { all: null, missing };
  const sorted = [...found].sort((a, b) => a.row - b.row || a.store.localeCompare(b.store) || a.broker.localeCompare(b.broker));
  const all = sorted.map(({ notes, ...rest }) => ({ ...rest, notes: notes.filter((note) => !note.startsWith("histories")) }));
  return { all, missing };
}
