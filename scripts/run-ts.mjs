// Runs a TypeScript file of this repository on any Node: `node scripts/run-ts.mjs bench/index.ts …`.
import { fileURLToPath } from "node:url";
import { runnerImport } from "vite";

const root = fileURLToPath(new URL("..", import.meta.url));
const [, , file, ...rest] = process.argv;
process.argv = [process.argv[0], file, ...rest];
await runnerImport(new URL(`../${file}`, import.meta.url).pathname, {
  root,
  configFile: false,
  logLevel: "error",
  oxc: { target: "node20" },
});
