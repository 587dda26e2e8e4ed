import type { LogLook, LogStanding } from "../../../contracts/log-tailer.ts";
import { inWords } from "../../../core/in-words.ts";
import type { Run } from "../connection.ts";
import { lossOf, readFacts, type SlotRow } from "./facts.ts";
import type { LogNames } from "./names.ts";

/** A reader confirms about once a second, and a busy neighbour may write this much in between. */
const laggingBytes = 128 * 1024 * 1024;
const laggingMs = 10_000;

export async function lookAt(run: Run, names: LogNames): Promise<LogLook> {
  const { slot } = await readFacts(run, names);
  if (slot === null) return { state: "missing", confirmed: null, behindBytes: 0, behindMs: null, retainedBytes: 0, safeBytes: null };
  const behindMs = slot.active_pid === null ? null : await lagOf(run, slot.active_pid);
  const sizes = {
    confirmed: slot.confirmed_flush_lsn,
    behindBytes: Math.max(0, slot.behind ?? 0),
    behindMs,
    retainedBytes: Math.max(0, slot.retained ?? 0),
    safeBytes: slot.safe_wal_size,
  };
  return { ...(await standingOf(run, slot, sizes.behindBytes, behindMs)), ...sizes };
}

async function standingOf(run: Run, slot: SlotRow, behind: number, behindMs: number | null): Promise<LogStanding> {
  const loss = lossOf(slot);
  if (loss !== null) return { state: "lost", why: loss };
  if (!slot.ours)
    return { state: "lost", why: `the slot of this name is of another plugin or database (${slot.plugin}, ${slot.database})` };
  if (slot.confirmed_flush_lsn === null)
    return { state: "preparing", waitsFor: slot.active_pid === null ? null : await blockerOf(run, slot.active_pid) };
  if (slot.active_pid === null) return { state: "unread" };
  const standby = slot.failover === true ? await absentStandby(run) : null;
  if (standby !== null) return { state: "waits for standby", standby };
  return { state: behind > laggingBytes || (behindMs ?? 0) > laggingMs ? "lagging" : "streaming" };
}

/** The server hides it from roles that may not see others' processes. */
async function lagOf(run: Run, pid: number): Promise<number | null> {
  const [row] = await run("SELECT extract(epoch FROM flush_lag) * 1000 AS ms FROM pg_stat_replication WHERE pid = $1::integer", [pid]);
  const ms = row?.["ms"] ?? null;
  return ms === null ? null : Number(ms);
}

/** The transaction that a process which makes a slot waits for, in words. */
async function blockerOf(run: Run, pid: number): Promise<string | null> {
  const [row] = await run(
    `SELECT b.pid, a.application_name AS application, a.usename AS role, a.datname AS database, a.state,
            extract(epoch FROM clock_timestamp() - a.xact_start) * 1000 AS ms
     FROM unnest(pg_blocking_pids($1::integer)) AS b (pid) LEFT JOIN pg_stat_activity a USING (pid)
     ORDER BY a.xact_start LIMIT 1`,
    [pid],
  );
  if (row === undefined) return null;
  if (row["pid"] === "0") return "a prepared transaction";
  const told = [
    ["role", row["role"]],
    ["database", row["database"]],
    ["application", row["application"]],
    ["state", row["state"]],
    ["open for", row["ms"] === null ? null : inWords(Number(row["ms"]))],
  ].flatMap(([what, value]) => ((value ?? "") === "" ? [] : `${what} ${value}`));
  return [`the transaction of process ${row["pid"]}`, ...told].join(", ");
}

/** A standby that the server waits for before it sends, and that is not there. */
async function absentStandby(run: Run): Promise<string | null> {
  const [row] = await run(
    `SELECT trim(both ' "' from n.name) AS name FROM unnest(string_to_array(current_setting('synchronized_standby_slots', true), ',')) AS n (name)
     WHERE trim(n.name) <> '' AND NOT EXISTS (SELECT 1 FROM pg_replication_slots s WHERE s.slot_name = trim(both ' "' from n.name) AND s.active)
     LIMIT 1`,
  );
  return row?.["name"] ?? null;
}
