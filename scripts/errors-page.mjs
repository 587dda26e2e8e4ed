import { writeFileSync } from "node:fs";
import { argv } from "node:process";
import { fileURLToPath } from "node:url";

/** docs/errors.md for a table of errors. */
export function errorsPage(table) {
  const entries = Object.entries(table).sort(([a], [b]) => (a < b ? -1 : 1));
  const cell = (text) => text.replaceAll("|", "\\|");
  return [
    "# Errors",
    "",
    "Every error of Waybill's own is a `WaybillError` with one of these codes in `code`. Its message names the value at fault;",
    "`remedy` is the way out, as below. *Retryable* means that the same call may succeed later without anything being changed by hand.",
    "",
    "This page is generated from `src/core/errors.ts` by `npm run docs`.",
    "",
    "| code | meaning | remedy | retryable |",
    "|---|---|---|---|",
    ...entries.map(
      ([code, { meaning, remedy, retryable }]) => `| \`${code}\` | ${cell(meaning)} | ${cell(remedy)} | ${retryable ? "yes" : "no"} |`,
    ),
    "",
  ].join("\n");
}

if (argv[1] === fileURLToPath(import.meta.url)) {
  const { errorTable } = await import("../dist/core/errors.js");
  writeFileSync(new URL("../docs/errors.md", import.meta.url), errorsPage(errorTable));
}
