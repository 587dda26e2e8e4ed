import { writeFileSync } from "node:fs";
import { quickStarts } from "./pages.ts";

/** Writes the quick starts. */
for (const [page, text] of Object.entries(quickStarts())) writeFileSync(new URL(`../../${page}`, import.meta.url), text);
