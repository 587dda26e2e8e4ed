import type { MysqlSession } from "./connection.ts";
import type { Names } from "./names.ts";
import { numberOf, type Parts, partsJson, partsOf, sizeOf, textOf } from "./rows.ts";
import type { SqlValue } from "./values.ts";

export interface StoredWindow {
  readonly id: string;
  readonly relay: string;
  /** How many events its relay had in flight when the window was made, the window's own included. */
  readonly width: number;
  readonly parts: Map<number, bigint[]>;
}

type Own = Pick<MysqlSession, "run" | "change">;

const columns = "`window`, CAST(relay AS BINARY) AS relay, width, CAST(seqs AS BINARY) AS seqs";

/** Locks them in the order of their keys: one relay may settle parts of a window while another takes over its other lanes. */
export async function lockWindows({ run }: Own, n: Names, ids: readonly string[]): Promise<readonly StoredWindow[]> {
  return ids.length === 0
    ? []
    : read(run, n, `FORCE INDEX (PRIMARY) WHERE \`window\` IN (${places(ids)}) ORDER BY \`window\` FOR UPDATE`, ids);
}

export async function readWindows({ run }: Own, n: Names, ids: readonly string[]): Promise<readonly StoredWindow[]> {
  return ids.length === 0 ? [] : read(run, n, `FORCE INDEX (PRIMARY) WHERE \`window\` IN (${places(ids)})`, ids);
}

export async function windowsOf({ run }: Own, n: Names, relays: readonly string[]): Promise<readonly string[]> {
  if (relays.length === 0) return [];
  const rows = await run(`SELECT \`window\` FROM ${n.windows} WHERE relay IN (${places(relays)})`, relays);
  return rows.map((row) => textOf(row, "window"));
}

async function read(run: Own["run"], n: Names, which: string, values: readonly SqlValue[]): Promise<readonly StoredWindow[]> {
  const rows = await run(`SELECT ${columns} FROM ${n.windows} ${which}`, values);
  return rows.map((row) => ({
    id: textOf(row, "window"),
    relay: textOf(row, "relay"),
    width: numberOf(row, "width"),
    parts: partsOf(textOf(row, "seqs")),
  }));
}

export async function makeWindow({ change }: Own, n: Names, window: StoredWindow): Promise<void> {
  await change(`INSERT INTO ${n.windows} (\`window\`, relay, width, events, seqs) VALUES (?, ?, ?, ?, ?)`, [
    window.id,
    window.relay,
    window.width,
    sizeOf(window.parts),
    partsJson(window.parts),
  ]);
}

/** Deletes a window that has no events left. */
export async function keepWindow(own: Own, n: Names, id: string, left: Parts): Promise<void> {
  const events = sizeOf(left);
  if (events === 0) return dropWindows(own, n, [id]);
  await own.change(`UPDATE ${n.windows} SET seqs = ?, events = ? WHERE \`window\` = ?`, [partsJson(left), events, id]);
}

export async function dropWindows({ change }: Own, n: Names, ids: readonly string[]): Promise<void> {
  if (ids.length > 0) await change(`DELETE w FROM ${n.windows} w FORCE INDEX (PRIMARY) WHERE w.\`window\` IN (${places(ids)})`, ids);
}

const places = (values: readonly unknown[]): string => values.map(() => "?").join(", ");
