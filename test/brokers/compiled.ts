import { mkdirSync, mkdtempSync, readdirSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";

const root = fileURLToPath(new URL("../../", import.meta.url));

/**
 * The sources of now and one program of the tests as JavaScript, for child processes: Node 20 runs no TypeScript, and dist/
 * may be an older build. Lies within node_modules, where packages are found and no tool looks for sources.
 */
export function compile(program: string): { readonly program: string; remove(): void } {
  const cache = join(root, "node_modules", ".cache");
  mkdirSync(cache, { recursive: true });
  const out = mkdtempSync(join(cache, "waybill-"));
  const emit = (path: string): string => {
    const { outputText } = ts.transpileModule(readFileSync(join(root, path), "utf8"), { compilerOptions });
    const target = join(out, path.replace(/\.ts$/, ".js"));
    mkdirSync(dirname(target), { recursive: true });
    writeFileSync(target, outputText);
    return target;
  };
  for (const room of ["core", "contracts", "drivers", "brokers"]) {
    for (const path of readdirSync(join(root, "src", room), { recursive: true, encoding: "utf8" })) {
      if (path.endsWith(".ts")) emit(join("src", room, path));
    }
  }
  return { program: emit(program), remove: () => rmSync(out, { recursive: true, force: true }) };
}

const compilerOptions: ts.CompilerOptions = {
  target: ts.ScriptTarget.ES2023,
  module: ts.ModuleKind.ESNext,
  verbatimModuleSyntax: true,
  rewriteRelativeImportExtensions: true,
};
