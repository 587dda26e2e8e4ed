import type { LogLook } from "../../../contracts/log-tailer.ts";
import type { LogUnreadable } from "../../../core/log-unreadable.ts";
import type { Connection } from "../connection.ts";
import { openLink } from "./driver.ts";
import type { LogFacts } from "./facts.ts";
import type { LogNames } from "./names.ts";
import { explainLog } from "./trouble.ts";

const asked = ["max_replication_slots", "max_wal_senders", "max_slot_wal_keep_size", "synchronous_standby_names"] as const;

/** What the server said about reading its log. */
export interface LogAnswers {
  readonly names: LogNames;
  readonly facts: LogFacts;
  readonly look: LogLook;
  readonly settings: Readonly<Record<(typeof asked)[number], string>>;
  /** In use. */
  readonly slots: number;
  readonly senders: number;
  /** Whether this role may create the publication. */
  readonly mayPublish: boolean;
  /** Why the server takes no connection for its log; null when it does. */
  readonly refusal: LogUnreadable | null;
}

interface Asking {
  readonly connection: Connection;
  readonly names: LogNames;
  readonly facts: LogFacts;
  readonly look: LogLook;
  readonly url: string;
  readonly connectTimeoutMs: number;
}

export async function readLogAnswers({ connection, names, facts, look, url, connectTimeoutMs }: Asking): Promise<LogAnswers> {
  const { run, place } = connection;
  const settings = await run("SELECT name, setting FROM pg_settings WHERE name = ANY ($1)", [[...asked]]);
  const [row] = await run(
    `SELECT (SELECT count(*) FROM pg_replication_slots) AS slots, (SELECT count(*) FROM pg_stat_replication) AS senders,
       has_database_privilege(current_database(), 'CREATE')
         AND coalesce((SELECT pg_has_role(c.relowner, 'USAGE') FROM pg_class c WHERE c.oid = to_regclass($1)), false) AS may`,
    [names.outbox],
  );
  return {
    ...{ names, facts, look },
    settings: Object.fromEntries(settings.map((each) => [each["name"], each["setting"]])) as LogAnswers["settings"],
    slots: Number(row!["slots"]),
    senders: Number(row!["senders"]),
    mayPublish: row!["may"] === "t",
    refusal: await refusalAt({ url, connectTimeoutMs }, place, names),
  };
}

/** Opens a connection for the log and closes it again: rights, rules for hosts and poolers show in no other way. */
async function refusalAt(
  settings: Pick<Asking, "url" | "connectTimeoutMs">,
  place: string,
  names: LogNames,
): Promise<LogUnreadable | null> {
  try {
    const link = await openLink(settings);
    try {
      await link.run("IDENTIFY_SYSTEM", settings.connectTimeoutMs);
    } finally {
      link.end();
    }
    return null;
  } catch (error) {
    return explainLog(error, place, names, null, "its slot");
  }
}
