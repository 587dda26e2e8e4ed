import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import mysql2 from "mysql2/promise";
import pg from "pg";
import { expect, test } from "vitest";
import type { EventRecord, Operator, WholeEvent } from "../../src/contracts/operator.ts";
import { defaultDriver } from "../../src/drivers/sqlite/driver.ts";
import { purgeStore } from "../../src/relay/housekeeping/purge.ts";
import { mysql } from "../../src/stores/mysql/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { sqlite } from "../../src/stores/sqlite/index.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startMariadb } from "../servers/mariadb.ts";
import { startPostgres } from "../servers/postgres.ts";

const mib = 1024 * 1024;
const unreadable = 300 * mib;
const large = 9 * mib;
const by = { who: "ada", dryRun: false };

const insert = (aggregateId: string, column: "payload" | "payload_bytes", value: string): string =>
  `INSERT INTO outbox (aggregate_type, aggregate_id, event_type, ${column}, status, last_error) VALUES ('Order', '${aggregateId}', 'E', ${value}, 'DEAD', 'no')`;

/** Dead events of these sizes: those that nobody can read are listed and shown with the others, and stay when the others are archived. */
async function expectBounded(
  operator: Operator,
  sizes: Readonly<Record<string, number>>,
  lost: readonly string[],
  why: RegExp,
): Promise<void> {
  const dead = await operator.list({ state: "DEAD", limit: 20 });
  expect(Object.fromEntries(dead.map(({ aggregateId, payloadBytes }) => [aggregateId, payloadBytes]))).toEqual(sizes);
  for (const { id, aggregateId } of dead) {
    const shown = await operator.show(id);
    expect(shown!.payload?.length ?? null, aggregateId).toBe(lost.includes(aggregateId) ? null : sizes[aggregateId]);
  }
  expect((await operator.discard({}, by)).events).toBe(dead.length);
  const before = new Date(Date.now() + 60_000);
  const [batches, kept]: [[string, number][][], EventRecord[]] = [[], []];
  const archive = async (events: readonly WholeEvent[]): Promise<void> =>
    void batches.push(events.map(({ aggregateId, payload }) => [aggregateId, payload.length]));
  const readable = Object.entries(sizes).filter(([name]) => !lost.includes(name));
  expect(await operator.purge(before, by, { archive, kept: (event) => void kept.push(event) })).toBe(readable.length);
  expect(batches.flat().sort()).toEqual(readable.sort());
  expect(batches).toContainEqual([["large", large]]);
  expect(kept.map(({ aggregateId }) => aggregateId).sort()).toEqual([...lost].sort());
  await expect(operator.purge(before, by, { archive })).rejects.toMatchObject({ code: "ROW_UNREADABLE" });
  const report = await purgeStore({ operator }, before, by, { archive });
  expect(report).toMatchObject({ events: 0, undone: [] });
  expect(report.kept).toHaveLength(lost.length);
  for (const text of report.kept) expect(text).toMatch(why);
  expect(await operator.purge(before, by)).toBe(lost.length);
}

const tooLarge = /^event .* stays.*the payload takes 314572800 bytes, more than/;
const sizes = { other: 1, large, lost: unreadable };

test("SQLite: what cannot be read is listed beside others, and stays when they are archived", async () => {
  const folder = mkdtempSync(join(tmpdir(), "waybill-large-"));
  try {
    const path = join(folder, "app.db");
    await using store = sqlite({ path });
    await store.schema.migrate();
    const db = (await defaultDriver())(path);
    db.exec(insert("other", "payload", "'1'"));
    db.exec(insert("large", "payload_bytes", `zeroblob(${large})`));
    db.exec(insert("lost", "payload_bytes", `zeroblob(${unreadable})`));
    db.close();
    const [lost] = await store.operator.list({ limit: 1 });
    const waybill = (...args: string[]): ReturnType<typeof inProcess> => inProcess([...args, "--store", `sqlite:${path}`], { cwd: folder });
    expect((await waybill("dead", "list")).code).toBe(0);
    expect((await waybill("dead", "show", lost!.id)).stdout).toContain(`${unreadable} bytes, too large to show`);
    await store.operator.discard({ ids: [lost!.id] }, by);
    writeFileSync(join(folder, "waybill.config.mjs"), "export default { archive: async () => undefined };");
    const purged = await waybill("purge", "--older-than", "0s", "--config", join(folder, "waybill.config.mjs"));
    expect(purged.stdout).toMatch(/Deleted 0 events .*\nNot done: event .* stays/);
    const again = (await defaultDriver())(path);
    again.exec("UPDATE outbox SET status = 'DEAD'");
    again.close();
    await expectBounded(store.operator, sizes, ["lost"], tooLarge);
  } finally {
    rmSync(folder, { recursive: true, force: true });
  }
});

await describeWith("postgres", "PostgreSQL", () => {
  test("what cannot be read is listed beside others, and stays when they are archived", async () => {
    await using server = await startPostgres({ version: 15 });
    const pool = new pg.Pool({ connectionString: server.url() });
    const store = postgres({ pool });
    await store.schema.migrate();
    await pool.query(insert("other", "payload", "'1'"));
    await pool.query(insert("large", "payload", `repeat('x', ${large})`));
    await pool.query(insert("lost", "payload_bytes", `decode(repeat('00', ${unreadable}), 'hex')`));
    await expectBounded(store.operator, sizes, ["lost"], tooLarge);
    await pool.end();
  });
});

await describeWith("mariadb", "MariaDB", () => {
  test("what the server cannot send is listed beside others, and stays when they are archived", async () => {
    await using server = await startMariadb({ settings: { "max-allowed-packet": "64M" } });
    const connection = await mysql2.createConnection(server.url());
    await connection.query("CREATE DATABASE large");
    await connection.query("USE large");
    await using filling = mysql({ url: server.url("large") });
    await filling.schema.migrate();
    await connection.query(insert("other", "payload", "'1'"));
    await connection.query(insert("large", "payload", `REPEAT('x', ${large})`));
    await connection.query(insert("text", "payload", `REPEAT('x', ${20 * mib})`));
    await connection.query(insert("bytes", "payload_bytes", `REPEAT('x', ${20 * mib})`));
    await connection.query("SET GLOBAL max_allowed_packet = 16777216");
    await connection.end();
    await using store = mysql({ url: server.url("large") });
    const all = { other: 1, large, text: 20 * mib, bytes: 20 * mib };
    await expectBounded(store.operator, all, ["text"], /^event .* stays/);
  });
});
