import { mkdtempSync, rmSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import pg from "pg";
import { expect, test } from "vitest";
import { embedded } from "../../src/brokers/embedded/index.ts";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { postgres, type PgClient } from "../../src/stores/postgres/index.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres } from "../servers/postgres.ts";

const topic = "order.events";
const never = new AbortController().signal;

await describeWith("postgres", "letters whose rows another session has locked", () => {
  test("are applied when it lets go, each once, and keep no other event waiting meanwhile", async () => {
    await using server = await startPostgres({ version: 15 });
    const folder = mkdtempSync(join(tmpdir(), "waybill-locked-"));
    const store = postgres({ url: server.url() });
    await store.schema.migrate();
    const session = new pg.Client({ connectionString: server.url() });
    await session.connect();
    await session.query("CREATE TABLE effects (id text NOT NULL)");
    const ids = Array.from({ length: 80 }, (_, n) => `parked-${n}`);
    for (const id of ids) {
      const envelope = sampleEvent({ id, aggregateId: id, type: "OrderPlaced", data: Buffer.from("{}") });
      await store.inbox.park({ envelope, topic, consumer: "shipping", error: "no", attempts: 1 });
    }
    await session.query("BEGIN; SELECT 1 FROM waybill_letters FOR UPDATE");
    // redrive itself would wait for the lock: as it stands, the rows are locked once they were redriven.
    await session.query(
      "UPDATE waybill_letters SET redriven_at = clock_timestamp(); COMMIT; BEGIN; SELECT 1 FROM waybill_letters FOR UPDATE",
    );

    await using broker = embedded({ path: join(folder, "broker.db") });
    await broker.provision([topic]);
    let troubles = 0;
    const subscriber = createSubscriber({
      ...{ consumer: "shipping", source: broker, inbox: store, topics: [topic] },
      observe: (event) => void (event.type === "subscriber.trouble" && troubles++),
      handlers: { "*": async (event, tx: PgClient) => void (await tx.query("INSERT INTO effects VALUES ($1)", [event.id])) },
    });
    await subscriber.start();
    // By now every turn is a letter's, unless they are given back.
    await expect.poll(() => troubles, { timeout: 15_000 }).toBeGreaterThanOrEqual(16);
    const live = Array.from({ length: 100 }, (_, n) =>
      sampleEvent({ id: `live-${n}`, aggregateId: `live-${n}`, type: "OrderPlaced", data: Buffer.from("{}") }),
    );
    await broker.publish(
      live.map((envelope) => ({ topic, source: "/test", envelope })),
      never,
    );
    const applied = async (kind: string): Promise<number[]> => {
      const text = "SELECT count(*)::int AS n, count(DISTINCT id)::int AS ids FROM effects WHERE id LIKE $1";
      const { rows } = await session.query<{ n: number; ids: number }>(text, [`${kind}-%`]);
      return [rows[0]!.n, rows[0]!.ids];
    };
    await expect.poll(() => applied("live"), { timeout: 30_000 }).toEqual([100, 100]);
    expect(await applied("parked")).toEqual([0, 0]);
    await session.query("ROLLBACK");
    await expect.poll(() => applied("parked"), { timeout: 45_000 }).toEqual([80, 80]);
    await subscriber.drain();
    await session.end();
    await store[Symbol.asyncDispose]();
    rmSync(folder, { recursive: true, force: true });
  });
});
