import { expect, test } from "vitest";
import { accessTo } from "../../src/cli/url.ts";
import { consumersOf, openGround } from "../../src/proof/run/ground.ts";
import { readStore } from "../../src/proof/run/reads.ts";
import type { Facts } from "../../src/proof/judge/facts.ts";
import { conservation } from "../../src/proof/judge/conservation.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startPostgres } from "../servers/postgres.ts";

const run = "verify_view";

/** Two events wait; then `spoil` makes the view wrong. */
async function readAfter(store: string, spoil: readonly string[]) {
  await using ground = await openGround(accessTo(), { store, run });
  await ground.prepare([`${run}-left/a-0`], consumersOf({ run }));
  const draft = { aggregateType: `${run}-left`, aggregateId: "a-0", type: "Changed", payload: 1 };
  await ground.transaction(async ({ add }) => void (await add([draft, draft])));
  const sound = await readStore(ground);
  for (const sql of spoil) await ground.ask(sql);
  const spoilt = await readStore(ground);
  await ground.remove();
  return { sound, spoilt };
}

const judged = (reads: Awaited<ReturnType<typeof readStore>>) =>
  conservation({ history: [], reads, events: new Map() } as unknown as Facts);

await describeWith("postgres", "conservation on PostgreSQL", () => {
  test("is counted in the tables, whatever the view says", async () => {
    await using server = await startPostgres({ version: 15 });
    const { sound, spoilt } = await readAfter(server.url(), [
      `ALTER VIEW "${run}".outbox_events RENAME TO whole`,
      `CREATE VIEW "${run}".outbox_events AS SELECT * FROM "${run}".whole WHERE false`,
    ]);
    for (const reads of [sound, spoilt]) {
      expect(reads.status).toMatchObject({ said: { PENDING: 2 }, truth: { PENDING: 2, PUBLISHING: 0 } });
      expect(judged(reads)).toMatchObject({ verdict: "holds" });
    }
  });
});

await describeWith("mariadb", "conservation on MariaDB", () => {
  test("is counted in the tables, whatever the view says", async () => {
    await using server = await startMariadb();
    const { sound, spoilt } = await readAfter(server.url(), [
      `CREATE OR REPLACE VIEW \`${run}_outbox_events\` AS SELECT o.*, 'DEAD' AS state FROM \`${run}_outbox\` o`,
    ]);
    for (const { status, outbox } of [sound, spoilt]) {
      expect(status?.truth).toMatchObject({ PENDING: 2, DEAD: 0 });
      expect(outbox?.map(({ state }) => state)).toEqual(["PENDING", "PENDING"]);
    }
  });
});
