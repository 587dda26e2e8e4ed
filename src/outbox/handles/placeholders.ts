/** Quoted names and strings, in which nothing is a placeholder, and the placeholders of PostgreSQL and of other databases. */
const tokens = /("(?:[^"]|"")*"|'(?:[^']|'')*'|`(?:[^`]|``)*`)|\$(\d+)|\?/g;

/** Rewrites a statement for a library. `placeholder` gets the number of a value, counted from 1, and `escape` gets all other text. */
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
