import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { fileURLToPath } from "node:url";
import ts from "typescript";
import { expect, test } from "vitest";

const root = fileURLToPath(new URL("../../", import.meta.url));

const head = `
import { z } from "zod";
import { defineEvents } from "../../src/outbox/catalogue.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { fakeStore, type FakeTx } from "../../test/outbox/fake-store.ts";
const events = defineEvents({
  OrderPlaced: { schema: z.object({ total: z.number(), to: z.object({ city: z.string() }).optional() }), aggregateType: "Order" },
  StockMoved: z.object({ sku: z.string() }),
});
const { store } = fakeStore({ synchronous: true });
export const typed = createOutbox({ store, events });
export const untyped = createOutbox({ store });
export declare const tx: FakeTx;
`;

const order = (rest: string, type = "OrderPlaced"): string => `{ aggregateId: "7", type: "${type}", ${rest} }`;
const plain = (rest: string): string => `{ aggregateType: "Order", aggregateId: "7", type: "OrderPlaced", payload: {}${rest} }`;

/** What is wrong in a draft, and what the compiler says of it. */
const mistakes: readonly (readonly [outbox: "typed" | "untyped", draft: string, word: string, said: RegExp])[] = [
  [
    "typed",
    order("payload: { total: 1 }, availbleAt: new Date()"),
    "availbleAt",
    /'availbleAt' does not exist.*Did you mean to write 'availableAt'\?/,
  ],
  ["typed", order("payload: { total: 1, to: { city: 'Ulm', zip: 1 } }"), "zip", /'zip' does not exist in type '\{ city: string; \}'/],
  ["typed", order('payload: { total: "1" }'), "total", /Type 'string' is not assignable to type 'number'/],
  ["untyped", plain(", availbleAt: new Date()"), "availbleAt", /'availbleAt' does not exist.*Did you mean to write 'availableAt'\?/],
  ["untyped", plain(", headers: { a: 1 }"), "a", /Type 'number' is not assignable to type 'string'/],
];

test("a mistake in a draft is one error of the compiler, at the field and with its name, alone and in a list", { timeout: 60_000 }, () => {
  const calls = mistakes.flatMap(([outbox, draft]) => [`${outbox}.add(tx, ${draft});`, `${outbox}.add(tx, [${draft}]);`]);
  calls.push(`typed.add(tx, ${order("payload: { total: 1 }", "OrderPlcaed")});`);
  const errors = errorsOf([head, ...calls.map((call) => `void ${call}`)].join("\n"));
  const expected = mistakes.flatMap(([, , word, said]) => [
    { word, said: expect.stringMatching(said) as string },
    { word, said: expect.stringMatching(said) as string },
  ]);
  expect(errors).toEqual([
    ...expected,
    { word: "type", said: expect.stringMatching(/"OrderPlcaed".*Did you mean '"OrderPlaced"'\?/) as string },
  ]);
});

function errorsOf(text: string): readonly { readonly word: string; readonly said: string }[] {
  mkdirSync(join(root, ".cache"), { recursive: true });
  const folder = mkdtempSync(join(root, ".cache", "said-once-"));
  try {
    const path = join(folder, "calls.ts");
    writeFileSync(path, text);
    const config = ts.readConfigFile(join(root, "tsconfig.json"), (file) => ts.sys.readFile(file));
    const { options } = ts.parseJsonConfigFileContent({ ...config.config, include: [path] }, ts.sys, root);
    const program = ts.createProgram([path], options);
    const source = program.getSourceFile(path)!;
    return [...program.getSyntacticDiagnostics(source), ...program.getSemanticDiagnostics(source)].map(({ start, messageText }) => ({
      word: /^\w+/.exec(text.slice(start))?.[0] ?? "",
      said: ts.flattenDiagnosticMessageText(messageText, "\n"),
    }));
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
}
