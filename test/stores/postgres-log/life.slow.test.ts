import { chmodSync, chownSync } from "node:fs";
import { setTimeout as sleep } from "node:timers/promises";
import { afterAll, beforeAll, expect, test } from "vitest";
import type { LogBatch } from "../../../src/contracts/log-tailer.ts";
import { describeWith } from "../../servers/available.ts";
import { accountFor } from "../../servers/place.ts";
import type { Postgres } from "../../servers/postgres.ts";
import { makeCertificates } from "../../support/certificates.ts";
import { eventsOf, logCase, never, readIds, readUntil, startLogged, troubleOf, versions } from "./harness.ts";

const mebibyte = 1024 * 1024;
const senderTimeoutMs = 2_000;

for (const [name, version] of versions)
  await describeWith(name, `a reader of the log of PostgreSQL ${version}`, () => {
    let server: Postgres;
    beforeAll(async () => {
      server = await startLogged(version, { wal_sender_timeout: senderTimeoutMs, logical_decoding_work_mem: "1MB" });
    });
    afterAll(() => server[Symbol.asyncDispose]());

    test("that does not ask for three times wal_sender_timeout lives, holds little, and misses nothing", async () => {
      await using outbox = await logCase(server, { aheadBytes: 256 * 1024 });
      const place = await outbox.tailer.prepare(never());
      await outbox.pool.query(
        `INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', g::text, 'E', repeat('x', 10000) FROM generate_series(1, 8000) g`,
      );
      const reading = await outbox.tailer.read(place, never());
      const iterator = reading[Symbol.asyncIterator]();
      const batches: LogBatch[] = [(await iterator.next()).value as LogBatch];
      const before = process.memoryUsage();
      const until = performance.now() + 3 * senderTimeoutMs;
      while (performance.now() < until) await sleep(100); // the promise is about this time
      const after = process.memoryUsage();
      expect(after.external - before.external, "not the 80 MB that wait").toBeLessThan(16 * mebibyte);
      while (eventsOf(batches).length < 8_000) batches.push((await iterator.next()).value as LogBatch);
      await reading.close();
      const ids = eventsOf(batches).map(({ envelope }) => envelope.aggregateId);
      expect(ids).toEqual(Array.from({ length: 8_000 }, (_, at) => String(at + 1)));
    });

    test("gets a transaction of 200,000 events in parts, with its end marked once, within a bounded memory", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      await outbox.pool.query(
        `INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
         SELECT 'Order', g::text, 'E', repeat('x', 300) FROM generate_series(1, 200000) g`,
      );
      await outbox.add(["next"]);
      const reading = await outbox.tailer.read(place, never());
      const before = process.memoryUsage().rss;
      let [count, ends, parts, largest, most] = [0, 0, 0, 0, before];
      let last = 0n;
      for await (const { transactions } of reading) {
        for (const { events, end } of transactions) {
          for (const { envelope } of events) {
            expect(envelope.seq > last).toBe(true);
            last = envelope.seq;
          }
          if (ends === 0) parts++;
          if (end !== null) ends++;
          count += events.length;
          largest = Math.max(largest, events.length);
        }
        most = Math.max(most, process.memoryUsage().rss);
        if (ends === 2) break;
      }
      expect({ count, ends }).toEqual({ count: 200_001, ends: 2 });
      expect(parts).toBeGreaterThan(20);
      expect(largest).toBeLessThan(10_000);
      console.log(
        `${parts} parts, the largest of ${largest} events; RSS ${Math.round(before / mebibyte)} MB, at most ${Math.round(most / mebibyte)} MB`,
      );
      expect(most - before).toBeLessThan(64 * mebibyte);
    });

    test("keeps the names of an event of 20 MB, and tells that it is arriving", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      await outbox.pool.query(
        `INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'large', 'E', repeat('0123456789', 2000000))`,
      );
      await outbox.add(["next"]);
      const reading = await outbox.tailer.read(place, never());
      const began = performance.now();
      let most = 0;
      const looking = setInterval(() => (most = Math.max(most, reading.arriving())), 1);
      const batches = await readUntil(reading, (so) => eventsOf(so).length === 2);
      clearInterval(looking);
      console.log(`20 MB after ${Math.round(performance.now() - began)} ms`);
      const [large, next] = eventsOf(batches);
      expect(large).toMatchObject({ large: true, envelope: { aggregateType: "Order", aggregateId: "large" } });
      expect(large!.envelope.data.length).toBe(0);
      expect(next!.envelope.aggregateId).toBe("next");
      expect(most).toBeGreaterThan(20_000_000);
    });

    test("whose server process is ended gets what came before and a link that broke, and reads on from its position", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = await outbox.tailer.read(place, never());
      await outbox.add(["1"]);
      const ids: string[] = [];
      let position = place.position;
      const trouble = await troubleOf(
        (async () => {
          for await (const batch of reading) {
            ids.push(...eventsOf([batch]).map(({ envelope }) => envelope.aggregateId));
            position = batch.end;
            if (ids.length === 1) {
              const pid = (await outbox.slot())!["active_pid"];
              await outbox.pool.query("SELECT pg_terminate_backend($1)", [pid]);
            }
          }
        })(),
      );
      expect({ trouble, ids }).toEqual({ trouble: "link", ids: ["1"] });
      await outbox.add(["2"]);
      expect(await readIds(await outbox.tailer.read({ ...place, position }, never()), 1)).toEqual(["2"]);
    });

    test("ends when it is closed, when its signal aborts and when the loop is left, and each time the slot is free at once", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const isFree = async (): Promise<boolean> => (await outbox.slot())!["active"] === false;
      const closed = await outbox.tailer.read(place, never());
      const loop = readUntil(closed, () => false);
      await closed.close();
      await loop;
      expect(await isFree()).toBe(true);

      const abort = new AbortController();
      const aborted = await outbox.tailer.read(place, abort.signal);
      const batches = readUntil(aborted, () => false);
      abort.abort();
      await batches;
      expect(await isFree()).toBe(true);

      await outbox.add(["1"]);
      expect(await readIds(await outbox.tailer.read(place, never()), 1)).toEqual(["1"]);
      expect(await isFree()).toBe(true);
    });

    test("cuts another reader off", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const former = troubleOf(readUntil(await outbox.tailer.read(place, never()), () => false));
      const reading = await outbox.another().read(place, never());
      expect(await former).toBe("link");
      await outbox.add(["1"]);
      expect(await readIds(reading, 1)).toEqual(["1"]);
    });

    test("whose slot is dropped under it fails, and finds it missing when it begins again", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = troubleOf(readUntil(await outbox.tailer.read(place, never()), () => false));
      await outbox.another().drop();
      expect(["link", "missing"]).toContain(await reading);
      expect(await troubleOf(outbox.tailer.read(place, never()))).toBe("missing");
      expect((await outbox.tailer.look()).state).toBe("missing");
    });

    test("keeps no server from shutting down once it is closed, and reads on after a crash", async () => {
      await using outbox = await logCase(server);
      const place = await outbox.tailer.prepare(never());
      const reading = await outbox.tailer.read(place, never());
      await outbox.add(["1"]);
      const [first] = await readUntil(reading, (so) => eventsOf(so).length === 1).then((so) => so.slice(-1));
      const again = await outbox.tailer.read({ ...place, position: first!.end }, never());
      const trouble = troubleOf(readUntil(again, () => false));
      await server.kill9();
      expect(await trouble).toBe("link");
      await server.start();
      await outbox.add(["2"]);
      expect(await readIds(await outbox.tailer.read(place, never()), 2)).toEqual(["1", "2"]);
      await server.restart("fast");
    });
  });

await describeWith("postgres", "a reader of the log over TLS", () => {
  test("has the driver's certificates and names, and refuses a server that it does not trust", async () => {
    using certificates = makeCertificates("DNS:localhost", "IP:127.0.0.1");
    const { uid, gid } = accountFor("postgres");
    chmodSync(certificates.key, 0o600); // the server takes no key that others may read
    if (uid !== undefined && gid !== undefined) chownSync(certificates.key, uid, gid);
    await using server = await startLogged(15, { ssl: "on", ssl_cert_file: certificates.cert, ssl_key_file: certificates.key });
    await using outbox = await logCase(server);
    const encrypted = new URL(server.url());
    encrypted.searchParams.set("sslmode", "verify-full");
    const untrusting = outbox.another({ url: encrypted.href });
    expect(await troubleOf(untrusting.prepare(never()))).toBe("link");
    encrypted.searchParams.set("sslrootcert", certificates.ca);
    const tailer = outbox.another({ url: encrypted.href });
    const place = await tailer.prepare(never());
    const reading = await tailer.read(place, never());
    const { rows } = await outbox.pool.query<{ ssl: boolean }>(
      "SELECT s.ssl FROM pg_stat_ssl s JOIN pg_replication_slots r ON r.active_pid = s.pid WHERE r.slot_name = $1",
      [outbox.name],
    );
    expect(rows).toEqual([{ ssl: true }]);
    await outbox.pool.query(
      `INSERT INTO ${outbox.schema}.outbox (aggregate_type, aggregate_id, event_type, payload)
       SELECT 'Order', g::text, 'E', repeat('x', 5000) FROM generate_series(1, 5000) g`,
    );
    expect((await readIds(reading, 5_000)).length).toBe(5_000);
  });
});
