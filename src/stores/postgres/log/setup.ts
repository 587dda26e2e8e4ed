import type { LogTailer } from "../../../contracts/log-tailer.ts";
import type { LogObject, TailSetup } from "../../../contracts/tail-setup.ts";
import { causesOf, sqlStateOf } from "../../../core/causes.ts";
import { applyRules } from "../../../core/finding.ts";
import { LogUnreadable } from "../../../core/log-unreadable.ts";
import type { Connection } from "../connection.ts";
import type { Names } from "../names.ts";
import { readLogAnswers } from "./answers.ts";
import { readFacts } from "./facts.ts";
import { logNames, type LogNames } from "./names.ts";
import { createPublication } from "./publication.ts";
import { logRules } from "./rules.ts";
import { failoverSlots } from "./slot.ts";

export interface SetupOptions {
  readonly connection: Connection;
  readonly names: Names;
  readonly tailer: LogTailer;
  readonly url: string;
  readonly connectTimeoutMs: number;
}

export function createSetup({ connection, names: n, tailer, url, connectTimeoutMs }: SetupOptions): TailSetup {
  const { run, place } = connection;
  const found = async (names: LogNames): Promise<readonly LogObject[]> => {
    const { publication, slot } = await readFacts(run, names);
    return [
      ...(publication === null ? [] : [{ what: "publication" as const, name: names.name }]),
      ...(slot === null ? [] : [{ what: "replication slot" as const, name: names.name }]),
    ];
  };
  return {
    found: async () => found(await logNames(run, n)),
    async print() {
      const [row] = await run(
        "SELECT current_setting('server_version_num') AS version, current_setting('wal_level') AS level, current_database() AS database",
      );
      return statements(await logNames(run, n), { version: Number(row!["version"]), level: row!["level"]!, database: row!["database"]! });
    },
    async remove() {
      const names = await logNames(run, n);
      const before = await found(names);
      await tailer.drop();
      await run(`DROP PUBLICATION IF EXISTS ${names.name}`).catch((error: unknown) => {
        if (!causesOf(error).some((cause) => sqlStateOf(cause) === "42501")) throw error;
        throw new LogUnreadable("rights", `${place}: the slot is dropped, but only its owner may drop the publication ${names.name}`, {
          cause: error,
        });
      });
      return before;
    },
    async examine(wanted) {
      const names = await logNames(run, n);
      const facts = await readFacts(run, names);
      if (facts.slot === null && !wanted) return [];
      return applyRules(logRules, await readLogAnswers({ connection, names, facts, look: await tailer.look(), url, connectTimeoutMs }));
    },
  };
}

interface ServerFacts {
  readonly version: number;
  readonly level: string;
  readonly database: string;
}

/** A line break in a name must not end a comment. */
const inComment = (text: string): string => JSON.stringify(text);

function statements(names: LogNames, { version, level, database }: ServerFacts): string {
  const failover = version < failoverSlots ? "" : ", failover => true";
  return `-- What lets a relay read the log of database ${inComment(database)}. An administrator runs it there.
-- Providers of databases have settings and roles of their own for the first two steps.

-- 1. wal_level must be logical. It is ${level}${level === "logical" ? "." : " now, and the change needs a restart of the server."}
${level === "logical" ? "-- " : ""}ALTER SYSTEM SET wal_level = logical;

-- 2. The role that relays log in as. waybill_relay is an example; waybill migrate --print --grants shows the other rights that it needs.
ALTER ROLE waybill_relay REPLICATION;

-- 3. What the log is to hold for the relay.
${createPublication(names, version).replace(/\n\s+/, "\n  ")};

-- 4. Not needed: a relay of that role makes the slot itself. When it is made here, the publication must have been committed before. The
-- server then waits for open transactions, and keeps its log from here on, until a relay has read it.
-- SELECT pg_create_logical_replication_slot('${names.name}', 'pgoutput'${failover});
`;
}
