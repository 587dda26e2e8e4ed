import { mkdirSync, writeFileSync } from "node:fs";
import { dirname, join } from "node:path";

/** What a reader of a page does, in the page's order. */
export type Step =
  /** A code block with a file's name: the reader saves it. */
  | { readonly kind: "file"; readonly name: string; readonly text: string }
  /** A line of a shell block: the reader runs it and waits for its end. */
  | { readonly kind: "command"; readonly line: string }
  /** A shell block that begins with `# terminal N`: the reader opens a terminal for it and leaves it running. */
  | { readonly kind: "terminal"; readonly line: string };

export function stepsOf(page: string): readonly Step[] {
  return [...page.matchAll(/^```(\w+)(?: (\S+))?\n([\s\S]*?)^```$/gm)].flatMap(([, language, name, text = ""]): Step[] => {
    if (name !== undefined) return [{ kind: "file", name, text }];
    if (language !== "sh") throw new Error(`a reader would not know what to do with this block: ${text}`);
    const lines = text.trim().split("\n");
    if (!lines[0]!.startsWith("# terminal ")) return lines.map((line) => ({ kind: "command", line }));
    if (lines.length !== 2) throw new Error(`a terminal runs one command, and this block has another number: ${text}`);
    return [{ kind: "terminal", line: lines[1]! }];
  });
}

export function save(folder: string, { name, text }: { readonly name: string; readonly text: string }): void {
  mkdirSync(dirname(join(folder, name)), { recursive: true });
  writeFileSync(join(folder, name), text);
}
