import { execFileSync } from "node:child_process";
import { chownSync, cpSync, mkdirSync, mkdtempSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { startMariadb } from "../../servers/mariadb.ts";
import { accountFor } from "../../servers/place.ts";
import { startPostgres } from "../../servers/postgres.ts";
import { brokerPairs, only, storePairs } from "./pairs.ts";
import { rounds } from "./rounds.ts";
import type { Change, Row, Stage } from "./row.ts";
import { reach, startBroker, type Reached } from "./servers.ts";
import { onMysql, onPostgres } from "./store-rows.ts";

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
      } catch {
        // It is full: that was the purpose.
      }
    },
    free: () => rmSync(filling, { force: true }),
    remove: () => unmount(path),
  };
}

const fillAndFree = (stage: Stage, of: "store" | "broker"): Promise<void> =>
  rounds(
    stage,
    of,
    "disk full",
    async () => {
      const { small } = stage[of] as unknown as { small: Small };
      small.fill();
      await stage.clock.sleep(2_500);
      small.free();
      // It switches JetStream off when it cannot write until it is started again, and version 2.9 does not end in order then.
      if (of === "broker" && stage.pair.broker === "nats") await stage.broker.server!.restart("immediate");
    },
    { calmMs: 1_500 },
  );

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
const dataOf = { redis: "appendonlydir", nats: "data" } as const;

async function smallBroker(name: "redis" | "nats"): Promise<Change> {
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
  while (server.pid === null) await new Promise((resolve) => setTimeout(resolve, 20)); // it is told a moment later
  const dispose = async (): Promise<void> => {
    small.remove();
    await reached[Symbol.asyncDispose]();
  };
  return { broker: Object.assign(reached, { small }), dispose, forMs: 12_000 };
}

const asRoot =
  process.getuid?.() === 0
    ? {}
    : {
        postgres: "only root may mount a small disk",
        mariadb: "only root may mount a small disk",
        sqlite: "only root may mount a small disk",
      };

export const diskRows: readonly Row[] = [
  {
    number: 23,
    title: "the database's disk is full",
    injected: "a tmpfs of 24 to 32 MB that holds the tables is filled for 2.5 s, time after time",
    pairs: storePairs,
    cannot: asRoot,
    prepare: ({ pair }) => smallStore(pair.store).then((change) => ({ ...change, forMs: 12_000 })),
    inject: (stage) => fillAndFree(stage, "store"),
  },
  {
    number: 24,
    title: "the broker's disk is full",
    injected: "a tmpfs that holds the broker's files is filled for 2.5 s, time after time; NATS is started again then, as it must be",
    pairs: brokerPairs.filter(only("redis", "nats", "kafka", "rabbitmq")),
    cannot: {
      ...asRoot,
      kafka: "Kafka ends itself when its disk is full, which is row 5; and keeps some of its files open from before a mount",
      rabbitmq: "RabbitMQ stops taking messages before its disk is full, which is the alarm of row 21",
    },
    prepare: ({ pair }) => smallBroker(pair.broker as "redis" | "nats"),
    inject: (stage) => fillAndFree(stage, "broker"),
  },
];
