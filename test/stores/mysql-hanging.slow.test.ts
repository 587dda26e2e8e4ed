import { expect } from "vitest";
import { WaybillError } from "../../src/core/errors.ts";
import type { MysqlConnection } from "../../src/stores/mysql/index.ts";
import { describeWith } from "../servers/available.ts";
import { ownMariadb } from "./mariadb-own.ts";

const key = { consumer: "billing", id: "e1" };

await describeWith("mariadb", "a handler whose query hangs on MariaDB", () => {
  const { own } = ownMariadb();
  // Only the first notices by itself that its client has gone.
  const queries = ["SELECT SLEEP(50)", "SELECT COUNT(*) FROM seq_1_to_1000000 a, seq_1_to_1000000 b WHERE MD5(a.seq + b.seq) = ''"];
  for (const sql of queries)
    own(`fails by itself, and keeps neither its event nor a connection (${sql})`, async ({ store, effects }) => {
      let hanging: Promise<unknown> = Promise.resolve();
      const hang = async (tx: MysqlConnection): Promise<void> => {
        await tx.query("INSERT INTO effects VALUES ('half')");
        hanging = tx.query(sql).catch(() => "cut");
        await hanging;
      };
      const timedOut = new WaybillError("HANDLER_TIMEOUT", "the handler did not finish in time");
      await expect(store.inbox.once(key, 1, (tx) => Promise.race([hang(tx), late(timedOut)]))).rejects.toBe(timedOut);
      expect(await hanging).toBe("cut");
      expect(await store.inbox.once(key, 1, async (tx) => void (await tx.query("INSERT INTO effects VALUES ('whole')")))).toBe("done");
      expect(await effects()).toEqual(["whole"]);
    });
});

const late = (error: Error): Promise<never> => new Promise((_, reject) => setTimeout(() => reject(error), 200));
