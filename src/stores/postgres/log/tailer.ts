import type { LogPlace, LogReading, LogTailer } from "../../../contracts/log-tailer.ts";
import type { Clock } from "../../../core/clock.ts";
import { isWaybillError } from "../../../core/errors.ts";
import { LogUnreadable } from "../../../core/log-unreadable.ts";
import type { Connection } from "../connection.ts";
import type { Names } from "../names.ts";
import { createDecoder } from "./decode.ts";
import { openLink, type LogLink } from "./driver.ts";
import { readFacts, lossOf } from "./facts.ts";
import { lookAt } from "./look.ts";
import { lsnOf } from "./lsn.ts";
import { logNames, type LogNames } from "./names.ts";
import { makePublication } from "./publication.ts";
import { createSlot, dropSlot, whileInUse } from "./slot.ts";
import { openStream } from "./stream.ts";
import { explainLog, refuseUnreadable, type Needed } from "./trouble.ts";

export interface TailerOptions {
  /** The store's own: for all that a pooler can carry. */
  readonly connection: Connection;
  readonly names: Names;
  readonly clock: Clock;
  /** Of the server itself: a pooler cannot carry the log. */
  readonly url: string;
  readonly connectTimeoutMs: number;
  /** @default 30000 */
  readonly lockTimeoutMs?: number;
  /** How many bytes are read ahead of whoever asks for batches. @default 1048576 */
  readonly aheadBytes?: number;
}

const patienceMs = 30_000;
/** Events with more bytes than this are read from the table, one at a time. */
const largestBytes = 8 * 1024 * 1024;
/** The server hears from us four times within its `wal_sender_timeout`, and at least this often. */
const longestBeatMs = 10_000;
/** A server that decodes a large transaction of others may be silent for long. */
const leastSilenceMs = 120_000;

/** Warnings tell of a publication that a server skips. */
const sessionSettings = "SET search_path = pg_catalog, pg_temp; SET client_min_messages = warning";

/** Other errors of ours say already what is wrong. */
const isServers = (error: unknown): boolean =>
  !isWaybillError(error) || isWaybillError(error, "STORE_UNAVAILABLE") || isWaybillError(error, "STORE_READ_ONLY");

export function createTailer(options: TailerOptions): LogTailer {
  const { connection, clock, url, connectTimeoutMs, lockTimeoutMs = 30_000, aheadBytes = 1024 * 1024 } = options;
  const { run, place } = connection;
  const facts = (names: LogNames) => readFacts(run, names);
  const logged = async <T>(what: Needed, work: (names: LogNames) => Promise<T>): Promise<T> => {
    const names = await logNames(run, options.names);
    return work(names).catch(async (error: unknown) => {
      throw isServers(error) ? await explainLog(error, place, names, () => facts(names), what) : error;
    });
  };
  const linked = async <T>(names: LogNames, work: (link: LogLink) => Promise<T>): Promise<T> => {
    const link = await openLink({ url, connectTimeoutMs }).catch(async (error: unknown) => {
      throw await explainLog(error, place, names, null, "its slot");
    });
    try {
      return await work(link);
    } catch (error) {
      link.destroy();
      throw error;
    }
  };

  const open = (names: LogNames, from: LogPlace, signal: AbortSignal): Promise<LogReading> =>
    linked(names, async (link) => {
      const [server] = await link.run("IDENTIFY_SYSTEM", patienceMs);
      const system = server!["systemid"]!;
      if (system !== from.system)
        throw new LogUnreadable(
          "elsewhere",
          `${place}: the position ${from.position} is of server ${from.system}, and this one is ${system}`,
        );
      const found = await facts(names);
      refuseUnreadable(found, place, names, "its slot");
      const confirmed = found.slot!.confirmed_flush_lsn;
      if (confirmed !== null && lsnOf(confirmed) > lsnOf(from.position))
        throw new LogUnreadable(
          "ahead",
          `${place}: the slot ${names.name} was confirmed up to ${confirmed}, beyond ${from.position} where reading is to begin`,
        );
      const [timeout] = await link.run(`${sessionSettings}; SELECT setting FROM pg_settings WHERE name = 'wal_sender_timeout'`, patienceMs);
      const timeoutMs = Number(timeout!["setting"]);
      return openStream({
        link,
        decoder: createDecoder(names, from.position),
        command: `START_REPLICATION SLOT ${names.name} LOGICAL ${from.position} (proto_version '1', publication_names '${names.name}', binary 'true')`,
        from: from.position,
        clock,
        beatMs: timeoutMs === 0 ? longestBeatMs : Math.min(longestBeatMs, timeoutMs / 4),
        silenceMs: Math.max(leastSilenceMs, 2 * timeoutMs),
        aheadBytes,
        largestBytes,
        signal,
        endOfLog: async () => (await run("SELECT pg_current_wal_insert_lsn() AS lsn"))[0]!["lsn"]!,
        explain: (error) => explainLog(error, place, names, () => facts(names), "its slot"),
      });
    });

  return {
    check: () =>
      logged("a new slot", (names) =>
        linked(names, async (link) => {
          await link.run("IDENTIFY_SYSTEM", patienceMs);
          link.end();
          const found = await facts(names);
          // What is not there yet is made later.
          if (found.walLevel !== "logical" || found.publication !== null) refuseUnreadable(found, place, names, "a new slot");
        }),
      ),
    look: () => logged("a new slot", (names) => connection.snapshot((inside) => lookAt(inside, names))),
    prepare: (signal) =>
      logged("a new slot", (names) =>
        linked(names, async (link) => {
          const [server] = await link.run("IDENTIFY_SYSTEM", patienceMs);
          const before = await facts(names);
          if (before.publication === null && before.walLevel === "logical") await makePublication(connection, names);
          const found = await facts(names);
          refuseUnreadable(found, place, names, found.slot?.ours === false ? "its slot" : "a new slot");
          const { slot } = found;
          if (slot?.active === true) throw new LogUnreadable("in use", `${place}: another process uses the slot ${names.name}`);
          // A slot that is there serves as well as a new one, from the end of the log on, if the publication surely is older.
          const usable = slot !== null && slot.younger && slot.confirmed_flush_lsn !== null && lossOf(slot) === null;
          if (!usable && slot !== null) await dropSlot(connection, names, clock);
          const position = usable ? server!["xlogpos"]! : await createSlot({ connection, link, names, clock, lockTimeoutMs, signal });
          link.end();
          return { system: server!["systemid"]!, position };
        }),
      ),
    read: (from, signal) => logged("its slot", (names) => whileInUse(connection, names.name, clock, () => open(names, from, signal))),
    drop: () => logged("a new slot", (names) => dropSlot(connection, names, clock)),
  };
}
