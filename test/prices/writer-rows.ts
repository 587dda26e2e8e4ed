import type { Dialect } from "./places.ts";

/** Rows that a role may write which may do nothing but add events, by plain SQL. */
export interface WriterRow {
  readonly name: string;
  readonly count: number;
  /** Runs transactions of these statements. */
  write(sql: Dialect, count: number, run: (statements: Iterable<string>) => Promise<void>): Promise<void>;
  /** How many bytes each of them has beside those of an ordinary event, and that a relay has to read. */
  readonly bytes?: number;
  /** They are due later, so that they are not dealt with when the relay is quiet. */
  readonly delayed?: true;
  /** Each of them is of a topic that does not exist. */
  readonly invented?: true;
  /** The table takes none of them. */
  readonly refused?: true;
  /** The relay's memory is looked at while it deals with them. */
  readonly watched?: true;
  /** Each of them leaves a hold. */
  readonly waits?: true;
  /** Each of them leaves a key. */
  readonly keyed?: true;
  /** A window has room for a few of them. */
  readonly large?: true;
}

type Columns = Readonly<Record<string, string>>;
const usual: Columns = { aggregate_type: "'Order'", event_type: "'Placed'", payload: "'{}'" };
const perStatement = 500;

function* inserts(count: number, row: (n: number) => Columns): Generator<string> {
  for (let from = 0; from < count; from += perStatement) {
    const rows = Array.from({ length: Math.min(perStatement, count - from) }, (_, n) => {
      const own = { aggregate_id: `'a-${from + n}'`, ...row(from + n) };
      return { ...usual, ...own };
    });
    const values = rows.map((each) => `(${Object.values(each).join(", ")})`);
    yield `INSERT INTO outbox (${Object.keys(rows[0]!).join(", ")}) VALUES ${values.join(", ")}`;
  }
}

const rowsOf =
  (row: (sql: Dialect, n: number) => Columns): WriterRow["write"] =>
  (sql, count, run) =>
    run(inserts(count, (n) => row(sql, n)));

const object = (sql: Dialect, bytes: number): string => sql.join(`'{"h":"'`, sql.text(bytes - 8), `'"}'`);
const nested = ({ deepest }: Dialect): string => `'{"h":${"[".repeat(deepest - 10)}${"]".repeat(deepest - 10)}}'`;

const mebibyte = 1_048_576;

/** `count` is that of a long run. */
export const writerRows: readonly WriterRow[] = [
  { name: "ordinary events, for comparison", count: 10_000, write: rowsOf(() => ({})) },
  {
    name: "types that nobody has heard of",
    count: 30_000,
    invented: true,
    waits: true,
    write: rowsOf((_, n) => ({ aggregate_type: `'Invented${n}'` })),
  },
  {
    name: "aggregates whose only event is refused for good",
    count: 10_000,
    waits: true,
    write: rowsOf(() => ({ aggregate_type: "'Doomed'" })),
  },
  {
    name: "events of one aggregate, behind one that is refused for good",
    count: 10_000,
    write: rowsOf(() => ({ aggregate_type: "'Doomed'", aggregate_id: "'one'" })),
  },
  {
    name: "events with 16 KiB of headers",
    count: 1_000,
    bytes: 16_384,
    write: rowsOf((sql) => ({ headers: object(sql, 16_384) })),
  },
  {
    name: "events with 16 KiB of data, one in a hundred of which is refused for good",
    count: 60_000,
    bytes: 16_384,
    waits: true,
    watched: true,
    write: rowsOf((sql, n) => ({ ...(n % 100 === 0 ? { aggregate_type: "'Doomed'" } : {}), payload: object(sql, 16_384) })),
  },
  {
    name: "events with more than 16 KiB of headers",
    count: 1_000,
    refused: true,
    write: rowsOf((sql) => ({ headers: object(sql, 131_072) })),
  },
  {
    name: "events with headers as deep as the table takes them",
    count: 1_000,
    bytes: 4_096,
    write: rowsOf((sql) => ({ headers: nested(sql) })),
  },
  {
    name: "events that become due at the same moment",
    count: 10_000,
    delayed: true,
    write: rowsOf((sql) => ({ available_at: sql.inSeconds(3) })),
  },
  { name: "events for next year", count: 10_000, write: rowsOf((sql) => ({ available_at: sql.inSeconds(31_536_000) })) },
  { name: "events for never", count: 10_000, write: rowsOf((sql) => ({ available_at: sql.never })) },
  { name: "events of as many event types", count: 10_000, write: rowsOf((_, n) => ({ event_type: `'Type${n}'` })) },
  { name: "events with an idempotency key each", count: 10_000, keyed: true, write: rowsOf((_, n) => ({ idempotency_key: `'key-${n}'` })) },
  {
    name: "events with names of 200 control characters",
    count: 1_000,
    bytes: 1_024,
    write: rowsOf((_, n) => ({
      aggregate_id: `'${"\u0001\u001b\u202e".repeat(40)}${n}'`,
      event_type: `'${"\u0007\n".repeat(100)}${n}'`,
    })),
  },
  {
    name: "payloads of 2 MiB, twice what the broker takes",
    count: 100,
    waits: true,
    large: true,
    write: rowsOf((sql) => ({ payload: sql.text(2 * mebibyte) })),
  },
  {
    name: "a payload of 100 MiB",
    count: 1,
    waits: true,
    large: true,
    write: rowsOf((sql) => ({ payload: sql.text(100 * mebibyte) })),
  },
  {
    name: "payloads of 1,000 KiB, which the broker just takes",
    count: 100,
    bytes: 1_000 * 1_024,
    large: true,
    write: rowsOf((sql) => ({ payload: sql.text(1_000 * 1_024) })),
  },
];
