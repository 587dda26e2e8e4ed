import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { Holder, Watch } from "../../src/contracts/housekeeping.ts";
import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { inProcess } from "../cli/in-process.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { scriptedSink } from "../support/scripted-sink.ts";
import { createRoles, draft, handOn, type Place, placeOn } from "./postgres-tools.ts";

await describeWith("postgres", "the watch on PostgreSQL", () => {
  let server: Postgres;
  beforeAll(async () => {
    server = await startPostgres({ version: 15, settings: { max_prepared_transactions: 5, autovacuum: "off" } });
  });
  afterAll(() => server[Symbol.asyncDispose]());

  const migrated = async (): Promise<Place> => {
    const place = await placeOn(server.url());
    await place.store.schema.migrate();
    return place;
  };

  /** A session of somebody else's that has run this, and stays as it is. */
  async function session(sql: string, application = "billing", database?: string): Promise<AsyncDisposable & { readonly pid: string }> {
    const client = new pg.Client({ connectionString: server.url(database), application_name: application });
    await client.connect();
    await client.query(sql);
    const { rows } = await client.query<{ pid: string }>("SELECT pg_backend_pid()::text AS pid");
    return { pid: rows[0]!.pid, [Symbol.asyncDispose]: () => client.end() };
  }
  const watch = ({ store }: Place): Promise<Watch> => store.housekeeping!.watch();

  test("names the oldest open writer and the oldest snapshot, with all that is known but what they run", async () => {
    await using place = await migrated();
    expect(await watch(place)).toMatchObject({ horizon: null, writer: null, unseen: null });
    await using reader = await session("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 'the secret'", "reports");
    await using _idle = await session("BEGIN; SELECT 1", "idle"); // holds nothing back
    await place.add(draft("a", 1));
    await using writer = await session("BEGIN; SELECT pg_current_xact_id(), 'the secret'");
    await using _later = await session("BEGIN; SELECT pg_current_xact_id()", "later");
    await new Promise((resolve) => setTimeout(resolve, 50));
    const seen = await watch(place);
    expect(seen.horizon).toMatchObject({
      kind: "session",
      name: reader.pid,
      user: "postgres",
      application: "reports",
      state: "idle in transaction",
    });
    expect(seen.writer).toMatchObject({
      kind: "session",
      name: writer.pid,
      user: "postgres",
      application: "billing",
      state: "idle in transaction",
    });
    expect((seen.writer as Holder).ageMs).toBeGreaterThanOrEqual(50);
    expect((seen.horizon as Holder).transactions).toBeGreaterThanOrEqual(2);
    expect(JSON.stringify(seen)).not.toContain("secret");
    expect((await place.store.operator.status()).watch).toMatchObject({ writer: { name: writer.pid }, horizon: { name: reader.pid } });
  });

  test("names a prepared transaction", async () => {
    await using place = await migrated();
    await place.sql("CREATE TABLE {s}.mine (n int)");
    await place.sql("BEGIN; INSERT INTO {s}.mine VALUES (1); PREPARE TRANSACTION 'forgotten'");
    try {
      const prepared = { kind: "prepared", name: "forgotten", user: "postgres", state: "prepared", ageMs: expect.any(Number) as number };
      expect(await watch(place)).toMatchObject({ writer: prepared, horizon: prepared });
    } finally {
      await place.sql("ROLLBACK PREPARED 'forgotten'");
    }
  });

  test("a writer in another database slows claims, a reader there keeps nothing from being cleaned up", async () => {
    await using place = await migrated();
    await using _reader = await session("BEGIN ISOLATION LEVEL REPEATABLE READ; SELECT 1", "reports", "template1");
    await using writer = await session("BEGIN; SELECT pg_current_xact_id()", "elsewhere", "template1");
    expect(await watch(place)).toMatchObject({ writer: { name: writer.pid, application: "elsewhere" }, horizon: null });
  });

  test("counts bytes and dead rows, over all partitions", async () => {
    await using plain = await migrated();
    await using parted = await placeOn(server.url(), { partitions: "day" });
    await parted.store.schema.migrate();
    for (const place of [plain, parted]) {
      const { bytes } = await watch(place);
      await place.add(...Array.from({ length: 500 }, (_, n) => draft(`o${n}`, n)));
      await (await handOn(place.store)).drain();
      await place.sql("SELECT pg_stat_force_next_flush()");
      await expect.poll(async () => (await watch(place)).deadRows, { timeout: 10_000 }).toBeGreaterThanOrEqual(500);
      expect((await watch(place)).bytes).toBeGreaterThan(bytes as number);
    }
  });

  test("a role that may not see others' sessions names them, and says what it does not know", async () => {
    await using place = await migrated();
    await createRoles(place.pool);
    await place.sql("GRANT USAGE ON SCHEMA {s} TO waybill_relay");
    const relay = place.open({ role: "waybill_relay" });
    await using writer = await session("BEGIN; SELECT pg_current_xact_id()");
    const known = {
      kind: "session",
      name: writer.pid,
      user: "postgres",
      application: "billing",
      transactions: expect.any(Number) as number,
    };
    const seen = await relay.housekeeping!.watch();
    expect(seen.writer).toEqual({ ...known, state: "unknown", ageMs: "unknown" });
    expect(seen.unseen).toMatch(/state and age of other roles' sessions.*GRANT pg_read_all_stats TO waybill_relay/);
    await place.sql("GRANT pg_read_all_stats TO waybill_relay");
    try {
      const more = await relay.housekeeping!.watch();
      expect(more).toMatchObject({ unseen: null, writer: { ...known, state: "idle in transaction", ageMs: expect.any(Number) as number } });
    } finally {
      await place.sql("REVOKE pg_read_all_stats FROM waybill_relay");
    }
  });

  test("a relay warns of the holder by name, and so does waybill status", async () => {
    await using place = await migrated();
    await using writer = await session("BEGIN; SELECT pg_current_xact_id(), 'the secret'");
    const events: PathEvent[] = [];
    const relay = createRelay({
      ...{ store: place.store, sink: scriptedSink(), observe: (event: PathEvent) => void events.push(event) },
      random: { next: () => 0, bytes: (length) => new Uint8Array(length) },
      housekeeping: { warn: { writerMs: 1, horizonMs: 1 } },
    });
    await relay.start();
    const warnings = () => events.filter((event) => event.type === "watch.warning");
    await expect
      .poll(() => warnings().map(({ what, holder }) => `${what}: ${holder}`), { timeout: 10_000 })
      .toContain(`writer: session ${writer.pid}`);
    await relay.drain();
    const warning = warnings().find(({ what }) => what === "writer")!;
    expect(warning.text).toMatch(
      /\(user postgres, application billing, state idle in transaction\) has been open for .*: until it ends, claims look at/,
    );
    expect(JSON.stringify(events)).not.toContain("secret");
    const config = { schema: place.schema };
    const status = await statusOf(server.url(), config);
    expect(status).toContain(`session ${writer.pid} (user postgres, application billing, state idle in transaction) has been open for`);
  });
});

async function statusOf(url: string, config: object): Promise<string> {
  const { mkdtempSync, rmSync, writeFileSync } = await import("node:fs");
  const { tmpdir } = await import("node:os");
  const { join } = await import("node:path");
  const folder = mkdtempSync(join(tmpdir(), "waybill-watch-"));
  try {
    writeFileSync(join(folder, "waybill.config.json"), JSON.stringify(config));
    const { stdout, stderr } = await inProcess(["status", "--store", url], { cwd: folder });
    return stdout + stderr;
  } finally {
    rmSync(folder, { recursive: true });
  }
}
