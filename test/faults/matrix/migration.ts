import { readFileSync } from "node:fs";
import type mysql from "mysql2/promise";
import type { Ask } from "../../../src/contracts/adapter.ts";
import type { Draft } from "../../../src/core/event.ts";
import { defaultDriver } from "../../../src/drivers/sqlite/driver.ts";
import { fileBeside } from "../../../src/drivers/sqlite/place.ts";
import type { Ground } from "../../../src/proof/run/ground.ts";
import { write } from "../../../src/proof/run/writer.ts";
import { statements as mysqlVersion1 } from "../../stores/mysql-v1.ts";
import { onMysql, onPostgres } from "./clients.ts";
import type { Stage } from "./row.ts";

const scriptOf = (name: string): string => readFileSync(new URL(`../../stores/${name}-v1.sql`, import.meta.url), "utf8");
const ownTables = ["counters", "written", "elsewhere", "effects", "applied"];
const quoted = ownTables.map((name) => `'${name}'`).join(", ");

/** Puts the tables of version 1, which are empty, in the place of those that the run has made. The run's own tables stay. */
export async function toVersion1({ pair, store, place: { run } }: Stage): Promise<void> {
  switch (pair.store) {
    case "postgres":
      return onPostgres(store.url, async (client) => {
        const { rows } = await client.query<{ drop: string }>(
          `SELECT format('DROP TABLE %I.%I CASCADE', schemaname, tablename) AS drop FROM pg_tables WHERE schemaname = $1 AND tablename NOT IN (${quoted})
           UNION ALL SELECT format('DROP SEQUENCE IF EXISTS %I.waybill_seq CASCADE', $1::text)
           UNION ALL SELECT format('DROP ROUTINE %s CASCADE', oid::regprocedure) FROM pg_proc WHERE pronamespace = $1::regnamespace`,
          [run],
        );
        for (const { drop } of rows) await client.query(drop);
        await client.query(scriptOf("postgres").replaceAll('"public"', `"${run}"`));
      });
    case "mariadb":
      return onMysql(store.url, async (connection) => {
        const [rows] = await connection.query<(mysql.RowDataPacket & { readonly name: string; readonly kind: string })[]>(
          "SELECT TABLE_NAME AS name, TABLE_TYPE AS kind FROM information_schema.TABLES WHERE TABLE_SCHEMA = DATABASE() AND LEFT(TABLE_NAME, ?) = ?",
          [run.length + 1, `${run}_`],
        );
        for (const { name, kind } of rows)
          if (!ownTables.includes(name.slice(run.length + 1)))
            await connection.query(`DROP ${kind === "VIEW" ? "VIEW" : "TABLE"} \`${name}\``);
        for (const sql of mysqlVersion1)
          await connection.query(sql.replaceAll(/`(outbox|inbox|outbox_events)`/g, `\`${run}_$1\``).replaceAll("`waybill_", `\`${run}_`));
      });
    case "sqlite": {
      const db = (await defaultDriver())(fileBeside(store.url.slice("sqlite:".length), run));
      const found = db.prepare(
        `SELECT type, name FROM sqlite_master WHERE type IN ('view', 'table') AND name NOT LIKE 'sqlite_%' AND name NOT IN (${quoted}) ORDER BY type DESC`,
      );
      for (const { type, name } of found.all() as { type: string; name: string }[]) db.exec(`DROP ${type} ${name}`);
      db.exec(scriptOf("sqlite"));
      db.close();
    }
  }
}

/** Events by plain SQL, with nothing of this code between the statement and the table. */
const insertPlainly =
  (ask: Ask, { outbox }: Ground["tables"]) =>
  async (drafts: readonly Draft[]): Promise<readonly []> => {
    for (const { id = "", aggregateType, aggregateId, type, payload, headers = {} } of drafts)
      await ask(`INSERT INTO ${outbox} (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, ?, ?, ?, ?, ?)`, [
        ...[id, aggregateType, aggregateId, type],
        ...[JSON.stringify(payload), JSON.stringify(headers)],
      ]);
    return [];
  };

/** The service's writer on a ground whose events go in by plain SQL. */
function plainWriter({ ground, recorder, clock, dutyOf }: Stage): { readonly written: () => number; end(): Promise<void> } {
  const duty = dutyOf("writer", 9);
  if (duty.role !== "writer") throw new Error("a writer was asked for");
  const plain: Ground = {
    ...ground,
    transaction: (work) =>
      ground.transaction(async ({ ask }) => {
        const last: Draft[] = [];
        const add = insertPlainly(ask, ground.tables);
        await work({ ask, add, events: { add: (given) => void last.push(...[given].flat()) } });
        await add(last);
      }),
  };
  // Bytes and the largest payloads have columns and limits of their own; text is what both versions share.
  const load = { ...duty.load, hard: 0, large: 0 };
  const task = { ...duty, load, name: "plain-writer", history: "", log: "" };
  const ending = new AbortController();
  let written = 0;
  const did = (count: number): void => void (written += count);
  const writing = write({ task, ground: plain, recorder, clock, did, say: () => undefined }, ending.signal);
  return {
    written: () => written,
    async end() {
      ending.abort();
      await writing;
    },
  };
}

export async function migrateUnderLoad(stage: Stage): Promise<void> {
  const { schema } = stage.ground.store;
  const writer = plainWriter(stage);
  try {
    // Nobody publishes before the migration is over: no relay of version 1 is at hand.
    const alone = stage.fault({ fault: "no relay", target: "relays", copies: 0 });
    while (stage.on() && writer.written() < 50) await stage.pause(20);
    const before = writer.written();
    const applied = await schema.migrate();
    if (before < 50 || applied[0] !== 2) throw new Error(`after ${before} events, migrate() applied ${JSON.stringify(applied)}`);
    await schema.check();
    stage.once("from version 1");
    stage.note(`${before} events were written by plain SQL before the migration, ${writer.written() - before} more until it was over`);
    const begin = (role: "relay" | "subscriber"): Promise<unknown>[] =>
      [1, 2].map((nth) => stage.add(`${role}-${nth}`, stage.dutyOf(role, nth)));
    await Promise.all([...begin("relay"), ...begin("subscriber")]);
    alone.ended();
    for (; stage.on(); await stage.pause(200)) {
      await schema.migrate();
      stage.once("nothing to do");
    }
  } finally {
    await writer.end();
  }
}
