import { execFileSync } from "node:child_process";
import { chownSync, cpSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMariadb } from "../../servers/mariadb.ts";
import { accountFor } from "../../servers/place.ts";
import { startPostgres } from "../../servers/postgres.ts";
import type { RabbitmqServer } from "../../servers/rabbitmq.ts";
import { onMysql, onPostgres } from "./clients.ts";
import { diskFelt, writerFelt } from "./felt.ts";
import { failFlushes } from "./flushes.ts";
import { brokerPairs, only, storePairs } from "./pairs.ts";
import { rounds } from "./rounds.ts";
import type { Change, Row, Stage } from "./row.ts";
import { reach, startBroker, type Reached } from "./servers.ts";

/** A file system that is soon full. */
interface Small {
  readonly path: string;
  /** Takes all that is left. */
  fill(): void;
  free(): void;
  remove(): void;
}

/** Whatever ends this process, none of them stays. */
const mounted = new Set<string>();
function unmount(path: string): void {
  if (mounted.delete(path)) execFileSync("umount", ["-l", path]);
}
process.on("exit", () => {
  for (const path of mounted) unmount(path);
});

function mountSmall(path: string, megabytes: number, owner: { readonly uid?: number; readonly gid?: number }): Small {
  execFileSync("mount", ["-t", "tmpfs", "-o", `size=${megabytes}m,mode=0700`, "tmpfs", path]);
  mounted.add(path);
  if (owner.uid !== undefined && owner.gid !== undefined) chownSync(path, owner.uid, owner.gid);
  const filling = join(path, "filling");
  return {
    path,
    fill() {
      try {
        writeFileSync(filling, Buffer.alloc(megabytes * 1024 ** 2));
      } catch (error) {
        if ((error as NodeJS.ErrnoException).code !== "ENOSPC") throw error; // it is full: that was the purpose
      }
    },
    free: () => rmSync(filling, { force: true }),
    remove: () => unmount(path),
  };
}

const fullMs = 2_500;
const alarmMs = 3_000;

async function fillAndFree(stage: Stage, of: "store" | "broker"): Promise<void> {
  const { small } = stage[of] as unknown as { small: Small };
  small.fill();
  await stage.clock.sleep(fullMs);
  small.free();
}

/** The run's tables are on the small disk, and the database's own log is not. */
async function smallStore(name: string): Promise<Change> {
  if (name === "sqlite") {
    const folder = mkdtempSync(join(tmpdir(), "waybill-small-"));
    const small = mountSmall(folder, 24, {});
    const url = `sqlite:${join(folder, "file.db")}`;
    const dispose = async (): Promise<void> => {
      small.remove();
      rmSync(folder, { recursive: true, force: true });
    };
    const reached: Reached = { server: null, link: null, url, linked: url, [Symbol.asyncDispose]: dispose };
    return { store: Object.assign(reached, { small }), dispose };
  }
  if (name === "mariadb") {
    const reached = await reach(await startMariadb());
    await onMysql(reached.url, (connection) => connection.query("CREATE DATABASE small"));
    const small = mountSmall(join(reached.server!.folder, "data", "small"), 32, accountFor("mysql"));
    const to = (url: string): string => url.replace(/\/test$/, "/small");
    const dispose = async (): Promise<void> => {
      small.remove();
      await reached[Symbol.asyncDispose]();
    };
    return { store: Object.assign({ ...reached, url: to(reached.url), linked: to(reached.linked) }, { small }), dispose };
  }
  const reached = await reach(await startPostgres({ version: 15 }));
  const folder = join(reached.server!.folder, "small");
  mkdirSync(folder);
  const small = mountSmall(folder, 24, accountFor("postgres"));
  await onPostgres(reached.url, async (client) => {
    await client.query(`CREATE TABLESPACE small LOCATION '${folder}'`);
    await client.query("ALTER ROLE postgres SET default_tablespace = 'small'");
  });
  const dispose = async (): Promise<void> => {
    small.remove();
    await reached[Symbol.asyncDispose]();
  };
  return { store: Object.assign(reached, { small }), dispose };
}

/** Where each broker keeps its messages, below its folder. */
const dataOf = { redis: "appendonlydir", nats: "data", kafka: "data" } as const;

async function smallBroker(name: keyof typeof dataOf): Promise<Change> {
  const reached = await startBroker(name);
  const server = reached.server!;
  await server.stop("fast");
  const folder = join(server.folder, dataOf[name]);
  const { uid, gid } = statSync(folder);
  const kept = mkdtempSync(join(tmpdir(), "waybill-kept-"));
  cpSync(folder, kept, { recursive: true });
  const small = mountSmall(folder, 48, { uid, gid });
  cpSync(kept, folder, { recursive: true });
  execFileSync("chown", ["-R", `${uid}:${gid}`, folder]);
  rmSync(kept, { recursive: true, force: true });
  await server.start();
  // It is told a moment later.
  for (let tries = 0; server.pid === null; tries++) {
    if (tries > 500) throw new Error(`${name} ended as soon as it had begun on the small disk`);
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  const dispose = async (): Promise<void> => {
    small.remove();
    await reached[Symbol.asyncDispose]();
  };
  return { broker: Object.assign(reached, { small }), dispose };
}

const asRoot = (...names: readonly string[]): Readonly<Record<string, string>> =>
  process.getuid?.() === 0 ? {} : Object.fromEntries(names.map((name) => [name, "only root may mount a small disk"]));

/** Of a disk that seems to have less room than the server wants to keep. */
async function diskAlarm(stage: Stage): Promise<void> {
  const server = stage.broker.server as RabbitmqServer;
  await server.control("set_disk_free_limit", "1000000000000000");
  await stage.clock.sleep(alarmMs);
  await server.control("set_disk_free_limit", "50000000");
}

/** What becomes of a broker's disk. Of one that does not flush before it acknowledges, no flush needs to fail. */
const diskFaults: Readonly<Record<string, readonly string[]>> = {
  redis: ["disk full", "flushes fail"],
  kafka: ["disk full", "flushes fail"],
  rabbitmq: ["disk alarm", "flushes fail"],
  nats: ["disk full"],
};

const breakDisk = (stage: Stage): Promise<void> =>
  rounds(
    stage,
    "broker",
    diskFaults[stage.pair.broker]!,
    async (_, kind) => {
      const server = stage.broker.server!;
      if (kind === "disk alarm") return diskAlarm(stage);
      if (kind === "disk full") await fillAndFree(stage, "broker");
      else {
        const failing = await failFlushes(server);
        await stage.clock.sleep(2_000);
        const failed = await failing.end();
        if (failed === 0) throw new Error("the server flushed nothing while its flushes were to fail");
        stage.note(`${failed} flushes failed, and the server ${server.pid === null ? "ended" : "went on"}`);
      }
      // Kafka and Redis have ended by then; NATS has switched JetStream off, and version 2.9 does not end in order.
      if (server.pid !== null) await server.stop("immediate");
      await server.start();
    },
    { calmMs: 1_500 },
  );

export const diskRows: readonly Row[] = [
  {
    number: 23,
    title: "the database's disk is full",
    injected: "a tmpfs of 24 to 32 MB that holds the tables is filled for 2.5 s, time after time",
    pairs: storePairs,
    cannot: asRoot("postgres", "mariadb", "sqlite"),
    felt: writerFelt,
    prepare: ({ pair }) => smallStore(pair.store).then((change) => ({ ...change, forMs: 12_000 })),
    inject: (stage) => rounds(stage, "store", "disk full", () => fillAndFree(stage, "store"), { calmMs: 1_500 }),
  },
  {
    number: 24,
    title: "the broker's disk is full, or dies",
    injected:
      "by turns: a tmpfs that holds the broker's files is filled for 2.5 s (on RabbitMQ, which stops before its disk is full, its disk alarm for 3 s), and every fsync of it fails for 2 s, where it waits for one before it acknowledges; then it is started again, as it must be",
    pairs: brokerPairs.filter(only("redis", "nats", "kafka", "rabbitmq")),
    cannot: asRoot("redis", "nats", "kafka"),
    kinds: ({ broker }) => diskFaults[broker]!,
    prepare: async ({ pair: { broker } }) => ({
      ...(broker === "rabbitmq" ? {} : await smallBroker(broker as keyof typeof dataOf)),
      forMs: broker === "kafka" || broker === "rabbitmq" ? 20_000 : 14_000,
    }),
    inject: breakDisk,
    felt: diskFelt({ "disk full": fullMs, "disk alarm": alarmMs }),
  },
];
