/** Quoted names and strings, in which nothing is a placeholder, and the placeholders of PostgreSQL and of the others. */
const tokens = /("(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`)|\$(\d+)|\?/g;

/** A statement with each placeholder in a library's own form, by the number of its value, and all other text as the library wants it escaped. */
export function rewrite(sql: string, placeholder: (number: number) => string, escape: (text: string) => string): string {
  let written = "";
  let from = 0;
  let count = 0;
  for (const { 0: found, 1: quoted, 2: number, index } of sql.matchAll(tokens)) {
    if (quoted !== undefined) continue;
    count++;
    written += escape(sql.slice(from, index)) + placeholder(number === undefined ? count : Number(number));
    from = index + found.length;
  }
  return written + escape(sql.slice(from));
}
