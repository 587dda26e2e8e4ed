import { readFileSync, writeFileSync } from "node:fs";
import { filledIn, tables } from "./tables.ts";

/** Writes the generated tables of the docs. */
for (const [page, parts] of Object.entries(tables)) {
  const file = new URL(`../../${page}`, import.meta.url);
  writeFileSync(file, filledIn(readFileSync(file, "utf8"), parts));
}
