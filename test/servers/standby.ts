import { chownSync, copyFileSync, mkdirSync, readdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import pg from "pg";
import { accountFor, type Account } from "./place.ts";
import { dataOf, runPostgres, type Postgres } from "./postgres.ts";

export interface Standby extends Postgres {
  /** Ends recovery: from here on it takes writes. The old primary is not told. */
  promote(): Promise<void>;
}

/** The name under which it replicates, for `synchronous_standby_names`. */
const standbyName = "waybill_standby";

/** A streaming standby of a running server. Its base backup is taken in SQL and by copying: not every package of ours has pg_basebackup. */
export async function startStandby(primary: Postgres): Promise<Standby> {
  const conninfo = `host=127.0.0.1 port=${primary.port} user=postgres application_name=${standbyName}`;
  const server = await runPostgres({
    bin: primary.bin,
    settings: { ...primary.settings, primary_conninfo: conninfo },
    prepare: (folder) => withClient(primary.url(), (client) => backup(client, primary, dataOf(folder))),
  });
  const promote = (): Promise<void> => withClient(server.url(), async (client) => void (await client.query("SELECT pg_promote(true, 30)")));
  return Object.assign(server, { promote });
}

async function backup(client: pg.Client, primary: Postgres, data: string): Promise<void> {
  const [begin, end] = Number.parseInt(primary.version) < 15 ? before15 : since15;
  const account = accountFor("postgres");
  await client.query(begin);
  copyTree(dataOf(primary.folder), data, account);
  const label = (await client.query<{ labelfile: string }>(end)).rows[0]?.labelfile;
  if (label === undefined) throw new Error("the primary gave no backup label");
  for (const [name, text] of [
    ["backup_label", label],
    ["standby.signal", ""],
  ] as const)
    give(join(data, name), account, (path) => writeFileSync(path, text, { mode: 0o600 }));
}

const since15 = ["SELECT pg_backup_start('standby', true)", "SELECT labelfile FROM pg_backup_stop(false)"] as const;
const before15 = ["SELECT pg_start_backup('standby', true, false)", "SELECT labelfile FROM pg_stop_backup(false, false)"] as const;

async function withClient<T>(url: string, use: (client: pg.Client) => Promise<T>): Promise<T> {
  const client = new pg.Client({ connectionString: url });
  await client.connect();
  try {
    return await use(client);
  } finally {
    await client.end();
  }
}

/** What a base backup leaves out: the primary's own run, and the log, which is streamed. Folders stay, empty. */
const without = new Set(["postmaster.pid", "postmaster.opts"]);
const emptied = new Set(["pg_wal", "pg_replslot", "pg_dynshmem", "pg_notify", "pg_stat_tmp", "pg_subtrans"]);

function copyTree(from: string, to: string, account: Account): void {
  give(to, account, (path) => mkdirSync(path, { mode: 0o700 }));
  for (const entry of readdirSync(from, { withFileTypes: true })) {
    const [source, target] = [join(from, entry.name), join(to, entry.name)];
    if (without.has(entry.name)) continue;
    if (emptied.has(entry.name)) {
      give(target, account, (path) => mkdirSync(path, { mode: 0o700 }));
      if (entry.name === "pg_wal") give(join(target, "archive_status"), account, (path) => mkdirSync(path, { mode: 0o700 }));
    } else if (entry.isDirectory()) copyTree(source, target, account);
    else {
      try {
        give(target, account, (path) => copyFileSync(source, path));
      } catch (error) {
        // The primary goes on working: a file may be gone, and then the log tells the standby so.
        if ((error as NodeJS.ErrnoException).code !== "ENOENT") throw error;
      }
    }
  }
}

function give(path: string, { uid, gid }: Account, make: (path: string) => void): void {
  make(path);
  if (uid !== undefined && gid !== undefined) chownSync(path, uid, gid);
}
