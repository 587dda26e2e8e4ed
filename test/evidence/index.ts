import { readFileSync, writeFileSync } from "node:fs";
import { mutants } from "../mutants/table.ts";
import { recallAll } from "./files.ts";
import { evidencePart, filledIn } from "./page.ts";
import { promises } from "./promises.ts";

/** Writes the generated part of docs/evidence.md. */
const page = new URL("../../docs/evidence.md", import.meta.url);
writeFileSync(page, filledIn(readFileSync(page, "utf8"), evidencePart(promises, mutants, recallAll())));
