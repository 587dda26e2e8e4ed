import { readdirSync, readFileSync } from "node:fs";
import pg from "pg";

const types = [
  ...["text", "integer", "bigint", "smallint", "boolean", "json", "name", "oid", "regclass", "numeric", "double precision"],
  ...["timestamptz", "interval", "xid", "xid8", '"char"', "bytea", "text[]", "bigint[]", "smallint[]", "integer[]", "name[]"],
];
const operators = ["=", "<>", "<", "<=", ">", ">=", "||", "+", "-", "*", "/", "%", "->>", "~", "!~", "~~", "!~~"];
/** Operators of arrays, JSON, bytes and truth values take theirs as they are. */
const compared = types.filter((type) => !/\[\]$|json|boolean|bytea/.test(type));
/** Signatures with several open arguments are tried with fewer types. */
const fewTypes = ["text", "integer", "bigint", "name", "regclass", "text[]", "bigint[]", "smallint[]"];
const mostSignatures = 200;

/** The words before a parenthesis in the store's SQL. */
function words(sql: string): readonly string[] {
  const folder = new URL("../../src/stores/postgres/", import.meta.url);
  const files = readdirSync(folder, { recursive: true, encoding: "utf8" }).filter((file) => file.endsWith(".ts"));
  const source = files.map((file) => readFileSync(new URL(file, folder), "utf8"));
  return [...new Set([sql, ...source].flatMap((text) => [...text.matchAll(/\b([a-z_][a-z0-9_]*)\(/g)].map(([, word]) => word!)))];
}

interface Known {
  readonly name: string;
  readonly args: readonly string[];
  readonly open: readonly boolean[];
  readonly variadic: boolean;
  readonly returns: string;
  readonly set: boolean;
}

const elementOf = (type: string): string => type.replace(/\[\]$/, "");
const arrayOf = (type: string): string => `${elementOf(type)}[]`;

function product(choices: readonly (readonly string[])[]): readonly (readonly string[])[] {
  return choices.reduce<readonly (readonly string[])[]>(
    (all, some) => all.flatMap((before) => some.map((each) => [...before, each])),
    [[]],
  );
}

const body = (what: string, set: boolean): string =>
  `LANGUAGE plpgsql AS $planted$ BEGIN RAISE LOG 'PLANTED: % as %', ${pg.escapeLiteral(what)}, CURRENT_USER; RETURN${set ? "" : " NULL"}; END $planted$`;

/**
 * Plants, as a role that may do no more than log in, a function or an operator for everything that the store's SQL calls, with the exact types
 * of arguments that PostgreSQL's own takes only after a conversion. Each writes its caller into the server's log. Answers how many there are.
 */
export async function plant(url: string, sql: string): Promise<number> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows: known } = await client.query<Known>(
    `SELECT p.proname AS name, ARRAY(SELECT format_type(t.oid, NULL) FROM unnest(p.proargtypes) WITH ORDINALITY a (oid, at) JOIN pg_type t ON t.oid = a.oid ORDER BY a.at) AS args,
            ARRAY(SELECT t.typtype = 'p' FROM unnest(p.proargtypes) WITH ORDINALITY a (oid, at) JOIN pg_type t ON t.oid = a.oid ORDER BY a.at) AS open,
            p.provariadic <> 0 AS variadic, format_type(p.prorettype, NULL) AS returns, p.proretset AS set
     FROM pg_proc p WHERE p.pronamespace = 'pg_catalog'::regnamespace AND p.proname = ANY ($1) AND p.pronargs BETWEEN 1 AND 4
       AND format_type(p.prorettype, NULL) NOT IN ('record', 'internal', 'trigger')`,
    [words(sql)],
  );
  const { rows: casts } = await client.query<{ source: string; target: string }>(
    `SELECT format_type(castsource, NULL) AS source, format_type(casttarget, NULL) AS target FROM pg_cast WHERE castcontext = 'i'`,
  );
  const long: Readonly<Record<string, string>> = { timestamptz: "timestamp with time zone" };
  const converts = (from: string, to: string): boolean =>
    casts.some(({ source, target }) => source === (long[from] ?? from) && target === to) || to === (long[from] ?? from);
  const planted = new Map<string, string>();
  for (const { name, args, open, variadic, returns, set } of known) {
    const given = variadic ? [2, 3, 4].map((n) => Array.from({ length: n }, (_, at) => at)) : [args.map((_, at) => at)];
    for (const places of given) {
      const choices = (all: readonly string[]): readonly (readonly string[])[] =>
        places.map((at) =>
          at >= args.length - (variadic ? 1 : 0) || open[at] === true
            ? all
            : all.filter((type) => converts(type, args[at]!)).concat(args[at]!),
        );
      const many = choices(types);
      const some = many.reduce((n, { length }) => n * length, 1) <= mostSignatures ? many : choices(fewTypes);
      for (const signature of product(some)) {
        const first = signature[0]!;
        const result = /array$/.test(returns) ? arrayOf(first) : /^any/.test(returns) ? elementOf(first) : returns;
        const what = `${name}(${signature.join(", ")})`;
        planted.set(what, `CREATE FUNCTION public.${what} RETURNS ${set ? "SETOF " : ""}${result} ${body(what, set)}`);
      }
    }
  }
  const result = (operator: string, left: string): string =>
    ["=", "<>", "<", "<=", ">", ">=", "~", "!~", "~~", "!~~"].includes(operator) ? "boolean" : operator === "||" ? "text" : left;
  for (const operator of operators)
    for (const [left, right] of product([compared, compared])) {
      const what = `op_${operators.indexOf(operator)}(${left}, ${right})`;
      planted.set(
        `${operator}(${left}, ${right})`,
        `CREATE FUNCTION public.${what} RETURNS ${result(operator, left!)} ${body(`${left} ${operator} ${right}`, false)};
         CREATE OPERATOR public.${operator} (LEFTARG = ${left}, RIGHTARG = ${right}, FUNCTION = public.op_${operators.indexOf(operator)})`,
      );
    }
  const statements = [...planted.values()];
  let made = 0;
  for (let at = 0; at < statements.length; at += 500) {
    const each = statements
      .slice(at, at + 500)
      .map((one) => `BEGIN EXECUTE ${pg.escapeLiteral(one)}; n := n + 1; EXCEPTION WHEN OTHERS THEN NULL; END;`);
    await client.query(
      `DO $plants$ DECLARE n int := 0; BEGIN ${each.join("\n")} PERFORM pg_catalog.set_config('plants.made', n::text, false); END $plants$`,
    );
    made += Number((await client.query<{ n: string }>("SELECT pg_catalog.current_setting('plants.made') AS n")).rows[0]!.n);
  }
  await client.end();
  return made;
}

/** For each function of ours, one of the same name that takes texts, and one that takes anything. */
export async function overload(url: string): Promise<void> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  const { rows } = await client.query<{ name: string; n: number; args: readonly string[] }>(
    `SELECT proname AS name, pronargs::int AS n FROM pg_proc p WHERE pronamespace = 'public'::regnamespace AND proname LIKE 'waybill%' AND pronargs > 0`,
  );
  for (const { name, n } of rows)
    for (const type of ["text", "anyelement"]) {
      const args = Array.from({ length: n }, () => type).join(", ");
      await client.query(`CREATE FUNCTION public.${name}(${args}) RETURNS text ${body(name, false)}`);
    }
  await client.end();
}
