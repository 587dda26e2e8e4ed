import { rmSync } from "node:fs";
import { fileURLToPath } from "node:url";
import { rolldown } from "rolldown";

const root = fileURLToPath(new URL("../../../", import.meta.url));
let made: Promise<string> | undefined;

/** The path's process as one JavaScript file: its start would otherwise take longer than the rest of a round. */
export const bundled = (): Promise<string> => (made ??= bundle());

async function bundle(): Promise<string> {
  const file = `${root}.cache/fuzz/child-${process.pid}.mjs`; // packages are found from within the repository
  const input = `${root}test/fuzz/line/child.ts`;
  const program = await rolldown({ input, platform: "node", external: (id) => !/^[./]/.test(id), transform: { target: "node20" } });
  await program.write({ file, format: "esm", codeSplitting: false });
  await program.close();
  process.on("exit", () => rmSync(file, { force: true }));
  return file;
}
