import { causesOf, sqlStateOf } from "../../../core/causes.ts";
import type { Clock } from "../../../core/clock.ts";
import { WaybillError } from "../../../core/errors.ts";
import { onAbort } from "../../../core/time.ts";
import type { Connection } from "../connection.ts";
import type { LogLink } from "./driver.ts";
import type { LogNames } from "./names.ts";

/** From this version on, a standby can have a copy of the slot, so that a failover keeps it. */
export const failoverSlots = 170_000;
/** How long a process may take that was asked to leave the slot alone. */
const evictMs = 10_000;
const betweenMs = 50;

const isState = (error: unknown, ...states: readonly string[]): boolean =>
  causesOf(error).some((cause) => states.includes(sqlStateOf(cause) ?? ""));

export const createCommand = ({ name }: LogNames, version: number): string =>
  `CREATE_REPLICATION_SLOT ${name} LOGICAL pgoutput ${version < failoverSlots ? "NOEXPORT_SNAPSHOT" : "(SNAPSHOT 'nothing', FAILOVER true)"}`;

export interface Making {
  readonly connection: Connection;
  readonly link: LogLink;
  readonly names: LogNames;
  readonly clock: Clock;
  /** Each wait for one transaction of others. `statement_timeout` does not end it. Then the slot is given back and asked for again. */
  readonly lockTimeoutMs: number;
  readonly signal: AbortSignal;
}

/**
 * Answers the position from which on every commit can be read. The server first waits for each transaction that is open, in any database. A
 * client that only went away would leave the waiting slot behind, so an abort ends the server's process.
 */
export async function createSlot(making: Making): Promise<string> {
  const { link, names, lockTimeoutMs, signal } = making;
  const [version] = await link.run("SHOW server_version_num", null);
  await link.run(`SET lock_timeout = ${lockTimeoutMs}`, null);
  const command = createCommand(names, Number(version!["server_version_num"]));
  const leave = onAbort(signal, () => void endProcess(making.connection, link.pid).catch(() => undefined));
  try {
    while (!signal.aborted) {
      try {
        const [row] = await link.run(command, null);
        if (!signal.aborted) return row!["consistent_point"]!;
      } catch (error) {
        if (isState(error, "42710")) throw error; // another process has made it, and it is not ours to drop
        if (isState(error, "55P03") && !signal.aborted) continue;
        await leaveNothing(making);
        if (!signal.aborted) throw error;
      }
    }
    await leaveNothing(making);
    throw new WaybillError("STOPPED", `the replication slot ${names.name} was not made: it was called off`);
  } finally {
    leave();
  }
}

/** Ends a process of ours. Only a sender of the log is ended, in case the number belongs to another process by now. */
const endProcess = (connection: Connection, pid: number): Promise<unknown> =>
  connection.run("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE pid = $1::integer AND backend_type = 'walsender'", [pid]);

/** The server may have made a slot whose answer did not arrive. */
async function leaveNothing(making: Making): Promise<void> {
  making.link.destroy();
  await endProcess(making.connection, making.link.pid).catch(() => undefined);
  await dropSlot(making.connection, making.names, making.clock);
}

/** Ends whoever reads the slot, and drops it. */
export async function dropSlot(connection: Connection, { name }: LogNames, clock: Clock): Promise<void> {
  await whileInUse(connection, name, clock, () =>
    connection.run("SELECT pg_drop_replication_slot(slot_name) FROM pg_replication_slots WHERE slot_name = $1", [name]),
  ).catch((error: unknown) => {
    if (!isState(error, "42704")) throw error; // it has gone meanwhile
  });
}

/** Repeats work that needs the slot for itself, and ends the process that uses it, for as long as that may take. */
export async function whileInUse<T>(connection: Connection, name: string, clock: Clock, work: () => Promise<T>): Promise<T> {
  const until = clock.monotonic() + evictMs;
  for (;;) {
    try {
      return await work();
    } catch (error) {
      if (!isState(error, "55006") || clock.monotonic() > until) throw error;
      await connection.run("SELECT pg_terminate_backend(active_pid) FROM pg_replication_slots WHERE slot_name = $1 AND active", [name]);
      await clock.sleep(betweenMs);
    }
  }
}
