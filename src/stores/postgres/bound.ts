import { literal } from "./names.ts";

/** Quoted names and texts, which are not looked into, and parameters. */
const parts = /"(?:[^"]|"")*"|'(?:[^']|'')*'|\$(\d+)/g;

/** The statement with its values written in as literals, for statements that travel together: the protocol takes parameters for one alone. */
export const bound = (text: string, values: readonly unknown[]): string =>
  values.length === 0
    ? text
    : text.replace(parts, (part, at: string | undefined) => (at === undefined ? part : literalOf(values[Number(at) - 1])));

/** Always a text, whose type the server finds as it does for a parameter: a bare number would choose other operators. */
const literalOf = (value: unknown): string => (value === null || value === undefined ? "NULL" : literal(textOf(value)));

function textOf(value: unknown): string {
  if (value instanceof Uint8Array) return `\\x${Buffer.from(value).toString("hex")}`;
  if (!Array.isArray(value)) return String(value);
  return `{${value.map((each: unknown) => (each === null ? "NULL" : `"${textOf(each).replaceAll(/["\\]/g, "\\$&")}"`)).join(",")}}`;
}
