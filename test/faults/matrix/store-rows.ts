import { appendFileSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { defaultDriver } from "../../../src/drivers/sqlite/driver.ts";
import { fileBeside } from "../../../src/drivers/sqlite/place.ts";
import { startTcpProxy, type TcpProxy } from "../../../src/proof/run/tcp-proxy.ts";
import { respAt } from "../../support/resp.ts";
import { startMariadb } from "../../servers/mariadb.ts";
import { followed, startMariadbStandby, type MariadbStandby } from "../../servers/mariadb-standby.ts";
import { startPgBouncer } from "../../servers/pgbouncer.ts";
import { startPostgres, type Postgres } from "../../servers/postgres.ts";
import { startStandby, type Standby } from "../../servers/standby.ts";
import { holdMysql, holdPostgres, onMysql, onPostgres } from "./clients.ts";
import { commitFelt, silenceFelt, storeFelt } from "./felt.ts";
import { migrateUnderLoad } from "./migration.ts";
import { only, storePairs } from "./pairs.ts";
import { copiesOf, rounds } from "./rounds.ts";
import type { Row } from "./row.ts";
import { reach, type Reached } from "./servers.ts";

const both = ["up", "down"] as const;

interface Followed {
  readonly primary: Reached;
  readonly replication: TcpProxy;
  readonly standby: Standby | MariadbStandby;
}

async function postgresPair(): Promise<Followed> {
  const primary = await reach<Postgres>(await startPostgres({ version: 15 }));
  const replication = await startTcpProxy(primary.server!.port);
  const throughLink = Object.create(primary.server, { port: { value: replication.port } }) as Postgres;
  return { primary, replication, standby: await startStandby(throughLink) };
}

async function mariadbPair(): Promise<Followed> {
  const primary = await reach(await startMariadb({ settings: followed }));
  const replication = await startTcpProxy(primary.server!.port);
  return { primary, replication, standby: await startMariadbStandby(replication.port) };
}

const noServer = "SQLite is a file: there is no server to lose";

export const storeRows: readonly Row[] = [
  {
    number: 8,
    title: "nobody can reach the database; the broker they can",
    injected: "a black hole between all processes and the database, for 1.5 and 4.2 s: less and more than a lease",
    pairs: storePairs,
    felt: silenceFelt("black hole"),
    cannot: { sqlite: noServer },
    prepare: () => ({ forMs: 14_000 }),
    inject: (stage) =>
      rounds(
        stage,
        "store",
        "black hole",
        async (round) => {
          for (const direction of both) stage.store.link!.fault(direction, { hold: true });
          await stage.clock.sleep(round % 2 === 0 ? 4_200 : 1_500);
          stage.store.link!.heal();
        },
        { calmMs: 1_500 },
      ),
  },
  {
    number: 9,
    title: "the database is killed and started again",
    injected: "PostgreSQL: immediate shutdown and crash recovery; MariaDB: SIGKILL; time after time",
    pairs: storePairs,
    felt: storeFelt,
    cannot: { sqlite: noServer },
    prepare: () => ({ forMs: 12_000 }),
    inject: (stage) => rounds(stage, "store", "restart", () => stage.store.server!.restart("immediate"), { calmMs: 1_500 }),
  },
  {
    number: 10,
    title: "nobody hears how a COMMIT ended",
    injected:
      "from a writer's COMMIT on, what the database answers is held back for 100 to 300 ms; then every connection is reset; again and again",
    pairs: storePairs,
    cannot: { sqlite: noServer },
    prepare: () => ({
      forMs: 14_000,
      // Relays are on the same link, and a settle may be lost: a small window allows few copies for that.
      ...{ relay: { batch: 4, batchesInFlight: 1 }, crew: { writers: 4, relays: 2, subscribers: 2 } },
      load: { aggregates: 8, hot: 0, pauseMs: 2, sleepMs: 200, bytes: 80, hard: 0.3, large: 0.002 },
    }),
    felt: commitFelt,
    async inject(stage) {
      const link = stage.store.link!;
      const over = stage.rest();
      const work = async (round: number): Promise<boolean> => {
        const met = await Promise.race([link.seen(stage.ground.tables.written, "COMMIT").then(() => true), over.then(() => false)]);
        link.fault("down", { hold: true });
        await stage.pause(100 + 40 * (round % 6));
        link.reset();
        link.heal();
        return met;
      };
      await rounds(stage, "store", "answers lost", work, { calmMs: 600 });
    },
  },
  {
    number: 11,
    title: "fail-over to a standby that has not received everything",
    injected: "the asynchronous standby is 0.6 s behind when the primary is killed; it is promoted, and everybody led there",
    pairs: storePairs,
    cannot: { sqlite: noServer },
    async prepare({ pair }) {
      // The standby follows over a link of its own, which can be held back.
      const { primary, replication, standby } = await (pair.store === "postgres" ? postgresPair() : mariadbPair());
      const dispose = async (): Promise<void> => {
        await replication[Symbol.asyncDispose]();
        await standby[Symbol.asyncDispose]();
        await primary[Symbol.asyncDispose]();
      };
      return { store: Object.assign(primary, { standby, replication }), dispose, forMs: 12_000, forgets: true };
    },
    async inject(stage) {
      const { standby, replication } = stage.store as unknown as Followed;
      await stage.pause(4_000);
      for (const direction of both) replication.fault(direction, { hold: true });
      await stage.clock.sleep(600);
      const fault = stage.fault({ fault: "failover", target: stage.pair.store, copies: copiesOf(stage) });
      await stage.store.server!.kill9();
      replication.reset();
      await standby.promote();
      fault.ended();
      stage.store.link!.retarget(standby.port);
      stage.store.link!.reset();
      stage.move({ store: standby.url() });
      stage.once();
      // The old primary stays away.
      Object.assign(stage.store, { server: standby });
    },
  },
  {
    number: 12,
    title: "the database has no connection left",
    injected:
      "others take every connection that the server gives, then all of ours are reset and have to race them for what comes free; the others go after 3 s",
    pairs: storePairs,
    felt: storeFelt,
    cannot: { sqlite: noServer },
    prepare: () => ({ forMs: 12_000 }),
    inject: (stage) =>
      rounds(
        stage,
        "store",
        "no connections",
        async () => {
          const holders: (() => Promise<unknown>)[] = [];
          const take = async (): Promise<boolean> => {
            const holder = await (stage.pair.store === "mariadb" ? holdMysql : holdPostgres)(stage.store.url);
            return holder !== null && holders.push(holder) > 0;
          };
          try {
            while (await take());
            stage.store.link!.reset();
            for (const until = stage.clock.monotonic() + 3_000; stage.on() && stage.clock.monotonic() < until; await stage.clock.sleep(2))
              while (await take());
            stage.note(`${holders.length} connections were taken`);
          } finally {
            await Promise.all(holders.map((end) => end().catch(() => undefined)));
          }
        },
        { calmMs: 1_500 },
      ),
  },
  {
    number: 13,
    title: "a transaction that does not end",
    injected: "one has written, and stays open for the whole run; on SQLite, which has one writer, for 2.5 s at a time",
    pairs: storePairs,
    // On SQLite everybody has to wait for it.
    prepare: ({ pair }) => (pair.store === "sqlite" ? { bounds: { latencyMs: 8_000, recoveryMs: 12_000 } } : {}),
    async inject(stage) {
      const { tables } = stage.ground;
      const sql = `INSERT INTO ${tables.elsewhere} (note) VALUES ('open')`;
      if (stage.pair.store === "postgres")
        return onPostgres(stage.store.url, async (client) => {
          await client.query("BEGIN");
          await client.query(sql);
          stage.once();
          await stage.rest();
        });
      if (stage.pair.store === "mariadb")
        return onMysql(stage.store.url, async (connection) => {
          await connection.query("START TRANSACTION WITH CONSISTENT SNAPSHOT");
          await connection.query(sql);
          stage.once();
          await stage.rest();
        });
      const db = (await defaultDriver())(fileBeside(stage.store.url.slice("sqlite:".length), stage.place.run));
      db.exec("PRAGMA busy_timeout = 5000");
      await rounds(
        stage,
        "store",
        "locked",
        async () => {
          db.exec("BEGIN IMMEDIATE");
          db.exec(sql);
          await stage.clock.sleep(2_500);
          db.exec("ROLLBACK");
        },
        { calmMs: 1_500 },
      );
      db.close();
    },
  },
  {
    number: 42,
    title: "migrate is run under traffic",
    injected:
      "while a service and plain SQL write, and relays and subscribers work, migrate() comes again and again, as with every deployment",
    pairs: storePairs,
    inject: migrateUnderLoad,
  },
  {
    number: 43,
    title: "purge at full load",
    injected: "relays purge all that is published, twice a second",
    pairs: storePairs,
    prepare: () => ({ relay: { housekeeping: { everyMs: 500, retentionMs: 1 } } }),
    async inject(stage) {
      await stage.rest();
      const [row] = await stage.ground.ask(`SELECT count(*) AS n FROM ${stage.ground.tables.written}`);
      const { states } = await stage.ground.store.operator.status();
      const gone = Number(row?.["n"]) - Object.values(states).reduce((sum, n) => sum + n, 0);
      stage.note(`${gone} rows were purged meanwhile`);
      if (gone > 0) stage.once();
    },
  },
  {
    number: 44,
    title: "a pooler in transaction mode in between",
    injected: "everybody works through PgBouncer, whose connections are reset now and then",
    pairs: storePairs.filter(only("postgres")),
    felt: storeFelt,
    async prepare({ store }) {
      const bouncer = await reach(await startPgBouncer(store.server as Postgres));
      return { store: { ...bouncer, url: store.url }, dispose: async () => bouncer[Symbol.asyncDispose]() };
    },
    inject: (stage) => rounds(stage, "store", "reset", async () => stage.store.link!.reset(), { calmMs: 2_000 }),
  },
  {
    number: 46,
    title: "the password is changed, and changed back",
    injected: "everybody's password is another one for 2.5 s, while all connections are reset",
    pairs: storePairs,
    felt: storeFelt,
    cannot: { sqlite: "a file has no password" },
    prepare: ({ pair, store }) => account(pair.store === "mariadb" ? "mariadb" : "postgres", store.url, store.linked, store.server!.folder),
    async inject(stage) {
      const change = (to: string): Promise<unknown> =>
        stage.pair.store === "mariadb"
          ? onMysql(stage.store.url, (connection) => connection.query(`ALTER USER keeper@localhost IDENTIFIED BY '${to}'`))
          : onPostgres(stage.store.url, (client) => client.query(`ALTER ROLE keeper PASSWORD '${to}'`));
      const brokerTo = (to: string, now: string): Promise<unknown> =>
        respAt(stage.broker.url.replace("redis://", now === "" ? "redis://" : `redis://:${now}@`), ["CONFIG", "SET", "requirepass", to]);
      await rounds(
        stage,
        "store",
        "password",
        async () => {
          await change(otherSecret);
          await brokerTo(otherSecret, "");
          stage.store.link!.reset();
          stage.broker.link!.reset();
          await stage.clock.sleep(2_500);
          await change(secret);
          await brokerTo("", otherSecret);
        },
        { calmMs: 1_500 },
      );
    },
  },
];

const secret = "hunter2-swordfish";
const otherSecret = "correct-horse-battery";

/** A user who has a password, and whose tables they are. */
async function account(kind: "postgres" | "mariadb", url: string, linked: string, folder: string) {
  if (kind === "mariadb") {
    await onMysql(url, async (connection) => {
      await connection.query(`CREATE OR REPLACE USER keeper@localhost IDENTIFIED BY '${secret}'`);
      await connection.query("GRANT ALL ON *.* TO keeper@localhost");
    });
  } else {
    const hba = join(folder, "data", "pg_hba.conf");
    const rule = "host all keeper all scram-sha-256\n";
    if (!readFileSync(hba, "utf8").startsWith(rule)) {
      const before = readFileSync(hba, "utf8");
      writeFileSync(hba, rule);
      appendFileSync(hba, before);
    }
    await onPostgres(url, async (client) => {
      await client.query("DROP ROLE IF EXISTS keeper");
      await client.query(`CREATE ROLE keeper SUPERUSER LOGIN PASSWORD '${secret}'`);
      await client.query("SELECT pg_reload_conf()");
    });
  }
  const as = (of: string): string => of.replace(/\/\/[^@]*@/, `//keeper:${secret}@`);
  return { place: { store: as(linked) }, direct: { store: as(url) }, canaries: [secret, otherSecret], forMs: 12_000 };
}
