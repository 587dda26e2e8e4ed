import { tmpdir } from "node:os";
import mysql2 from "mysql2/promise";
import { afterAll, beforeAll, expect, test } from "vitest";
import { grants } from "../../src/stores/mysql/grants.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { namesOf } from "../../src/stores/mysql/names.ts";
import { fingerprints } from "../../src/stores/mysql/schema.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import type { Server } from "../servers/server.ts";
import { both } from "../stores/mariadb-own.ts";
import { badOf } from "./recorded.ts";

const never = new AbortController().signal;

/** `setting letters` of everything bad, as a new connection sees it. */
async function badAt(url: string): Promise<readonly string[]> {
  await using store = mysql({ url, connections: 1 });
  return badOf(await store.examine!([], never));
}

for (const { name, title, start } of both)
  await describeWith(name, `waybill doctor on ${title}`, () => {
    let server: Server;
    let root: mysql2.Connection;

    beforeAll(async () => {
      server = await start({ settings: { "log-bin": "binlog", "sync-binlog": 1, "server-id": 1 } });
      root = await mysql2.createConnection({ uri: server.url(), multipleStatements: true });
      await root.query("CREATE DATABASE app; USE app"); // everybody has every right on the one that is called test
      await using store = mysql({ url: asOwner() });
      await store.schema.migrate();
      for (const grant of grants(namesOf(undefined), false)) await root.query(grant);
      await root.query(
        `CREATE USER relay@localhost IDENTIFIED BY 's3cret'; GRANT waybill_relay TO relay@localhost; SET DEFAULT ROLE waybill_relay ${name === "mariadb" ? "FOR" : "TO"} relay@localhost`,
      );
    });
    afterAll(async () => {
      await root?.end();
      await server?.[Symbol.asyncDispose]();
    });

    const asOwner = (): string => server.url("app");
    const asRelay = (): string => asOwner().replace("root@", "relay:s3cret@");

    test("nothing is bad of a healthy server, for its owner and for a relay with the least rights", async () => {
      expect(await badAt(asOwner())).toEqual([]);
      const { code, stdout, stderr } = await inProcess(["doctor", "--store", asRelay()], { cwd: tmpdir() });
      expect({ code, stderr }).toEqual({ code: 0, stderr: "" });
      // MySQL shows triggers to those with the right TRIGGER alone.
      expect(stdout).toMatch(name === "mariadb" ? /^0 bad settings, 0 unknown, 1\d good\.\n/ : /^0 bad settings, 1 unknown, 1\d good\.\n/);
      expect(stdout).not.toContain("s3cret");
    });

    test("nothing is bad of an outbox with partitions and names of its own", async () => {
      await root.query("CREATE DATABASE `a b`");
      await using store = mysql({ url: asOwner(), connections: 1, schema: "a b", names: { outbox: "Out `box" }, partitions: "day" });
      await store.schema.migrate();
      expect(badOf(await store.examine!([], never))).toEqual([]);
      await root.query("ALTER TABLE `a b`.`Out ``box` DROP INDEX ready");
      expect(badOf(await store.examine!([], never))).toEqual(["objects I"]);
    });

    const isolation = "SET GLOBAL transaction isolation level";
    test.each<[what: string, plant: string, undo: string, bad: readonly string[]]>([
      [
        "a log that is only written",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 2",
        "SET GLOBAL innodb_flush_log_at_trx_commit = 1",
        ["innodb_flush_log_at_trx_commit L"],
      ],
      ["a binary log that is not flushed", "SET GLOBAL sync_binlog = 0", "SET GLOBAL sync_binlog = 1", ["sync_binlog L"]],
      [
        "another storage engine",
        "SET GLOBAL default_storage_engine = MyISAM",
        "SET GLOBAL default_storage_engine = InnoDB",
        ["default_storage_engine E"],
      ],
      ["reads of what may roll back", `${isolation} READ UNCOMMITTED`, `${isolation} REPEATABLE READ`, ["transaction_isolation P"]],
      ["a server for reading", "SET GLOBAL read_only = 1", "SET GLOBAL read_only = 0", ["read_only L"]],
      ["a dropped index", "DROP INDEX blocked ON outbox", "CREATE INDEX blocked ON outbox (blocked, seq)", ["objects I"]],
      ["a dropped unique index", "DROP INDEX id ON outbox", "CREATE UNIQUE INDEX id ON outbox (id)", ["objects E"]],
      [
        "a table that cannot roll back",
        "ALTER TABLE waybill_audit ENGINE = MyISAM",
        "ALTER TABLE waybill_audit ENGINE = InnoDB",
        ["engine LP"],
      ],
      [
        "an inbox that mixes letters up",
        "ALTER TABLE inbox MODIFY event_id VARCHAR(255) COLLATE utf8mb4_general_ci NOT NULL",
        `ALTER TABLE inbox MODIFY event_id VARCHAR(255) COLLATE ${name === "mariadb" ? "utf8mb4_nopad_bin" : "utf8mb4_0900_bin"} NOT NULL`,
        ["collation E"],
      ],
      ["lanes without a row", "DELETE FROM waybill_lanes WHERE lane = 5", "INSERT INTO waybill_lanes (lane) VALUES (5)", ["lanes L"]],
      [
        "newer tables",
        "UPDATE waybill_meta SET version = 99",
        `UPDATE waybill_meta SET version = ${fingerprints.length}`,
        ["schema version L"],
      ],
    ])("%s is found, and nothing else", async (_, plant, undo, bad) => {
      await root.query(plant);
      try {
        expect(await badAt(asOwner())).toEqual(bad);
      } finally {
        await root.query(undo);
      }
      expect(await badAt(asOwner())).toEqual([]);
    });

    test("a relay without PROCESS, and one that may not read the tables, are told", async () => {
      await root.query("REVOKE PROCESS ON *.* FROM waybill_relay");
      expect(await badAt(asRelay())).toEqual(["PROCESS V"]);
      await root.query("GRANT PROCESS ON *.* TO waybill_relay; REVOKE SELECT ON waybill_meta FROM waybill_relay");
      await using store = mysql({ url: asRelay(), connections: 1 });
      const findings = await store.examine!([], never);
      expect(badOf(findings)).toEqual([]);
      expect(findings.filter(({ verdict }) => verdict === "unknown").map(({ setting }) => setting)).toEqual(["schema version"]);
      await root.query("GRANT SELECT ON waybill_meta TO waybill_relay");
    });

    test("a trigger that was dropped is found by whoever may see triggers", async () => {
      await root.query("CREATE USER reader@localhost; GRANT SELECT ON app.* TO reader@localhost; GRANT PROCESS ON *.* TO reader@localhost");
      await root.query("DROP TRIGGER waybill_use_key");
      expect(await badAt(asOwner())).toEqual(["objects D"]);
      await using store = mysql({ url: asOwner().replace("root@", "reader@"), connections: 1 });
      const findings = await store.examine!([], never);
      expect(badOf(findings)).toEqual([]);
      expect(findings.filter(({ verdict }) => verdict === "unknown").map(({ setting }) => setting)).toEqual(["objects (trigger)"]);
      await root.query("GRANT TRIGGER ON `ap_`.* TO reader@localhost");
      expect(await badAt(asOwner().replace("root@", "reader@"))).toEqual(["objects D"]);
    });

    test("a database without tables is told, and gets none", async () => {
      await root.query("CREATE DATABASE empty_one");
      expect(await badAt(server.url("empty_one"))).toEqual(["schema version L"]);
      const [tables] = await root.query<mysql2.RowDataPacket[]>("SHOW TABLES IN empty_one");
      expect(tables).toEqual([]);
    });
  });
