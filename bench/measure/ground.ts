import { rmSync } from "node:fs";
import pg from "pg";
import { startKafka } from "../../test/servers/kafka.ts";
import { startMariadb } from "../../test/servers/mariadb.ts";
import { startNats } from "../../test/servers/nats.ts";
import { ownFolder } from "../../test/servers/place.ts";
import { startPostgres, type Postgres } from "../../test/servers/postgres.ts";
import { startRabbitmq } from "../../test/servers/rabbitmq.ts";
import { startRedis } from "../../test/servers/redis.ts";

/** The server and the settings that scenarios run on. */
export interface Ground extends AsyncDisposable {
  readonly postgres: Postgres;
  readonly quick: boolean;
  /** Rounds of each side. */
  readonly rounds: number;
  /** Whether a comparison that takes too long may run fewer rounds. False with --rounds. */
  readonly hurried: boolean;
  /** Another checkout, already built. Our rounds take turns with the same rounds there. */
  readonly beside: string | null;
  /** A fresh database of the PostgreSQL server. */
  database(name: string): Promise<string>;
  /** Also ends every connection to the database. */
  dropDatabase(url: string): Promise<void>;
  /** A tenth of the events with --quick. */
  size(events: number): number;
  /** The names that --only mentions, or all of them if it mentions none. */
  chosen<Name extends string>(names: readonly Name[]): readonly Name[];
}

/**
 * Full-page images are off, so that the WAL of an event does not depend on when the last checkpoint was. Otherwise the server is as
 * durable as with its default settings.
 */
const settings = { shared_buffers: "512MB", max_wal_size: "4GB", full_page_writes: "off" };

interface GroundOptions extends Pick<Ground, "quick" | "beside"> {
  readonly only: readonly string[];
  readonly rounds: number | null;
}

export async function openGround({ quick, beside, only, rounds }: GroundOptions): Promise<Ground> {
  const postgres = await startPostgres({ version: 15, settings });
  const admin = new pg.Client({ connectionString: postgres.url() });
  admin.on("error", () => undefined); // a run that fails shows its own error
  await admin.connect();
  let databases = 0;
  return {
    postgres,
    quick,
    rounds: rounds ?? (quick ? 1 : 5),
    hurried: rounds === null,
    beside,
    database: async (name) => {
      const unique = `bench_${name}_${++databases}`;
      await admin.query(`CREATE DATABASE ${unique}`);
      return postgres.url(unique);
    },
    dropDatabase: async (url) => void (await admin.query(`DROP DATABASE ${new URL(url).pathname.slice(1)} WITH (FORCE)`)),
    size: (events) => (quick ? Math.ceil(events / 10) : events),
    chosen: (names) => (names.some((name) => only.includes(name)) ? names.filter((name) => only.includes(name)) : names),
    async [Symbol.asyncDispose]() {
      await admin.end();
      await postgres[Symbol.asyncDispose]();
    },
  };
}

/** A place that events come from or go to, and the process whose CPU it costs. */
export interface Place extends AsyncDisposable {
  readonly url: string;
  readonly pid: number | null;
}

/** A folder beside those of the servers, in memory where there is room. It has no pid: our own process does the work on its file. */
function folder(): Place {
  const path = ownFolder("bench", {});
  return { url: path, pid: null, [Symbol.asyncDispose]: async () => rmSync(path, { recursive: true }) };
}

const serverOf = (start: () => Promise<{ url(): string; readonly pid: number | null } & AsyncDisposable>) => async (): Promise<Place> => {
  const server = await start();
  return { url: server.url(), pid: server.pid, [Symbol.asyncDispose]: () => server[Symbol.asyncDispose]() };
};

/** A separate PostgreSQL server whose WAL can be decoded. */
export const logical = serverOf(() => startPostgres({ version: 15, settings: { ...settings, wal_level: "logical" } }));

/** Brokers by the name of their adapter. */
export const brokers = {
  kafka: { name: "Kafka", open: serverOf(() => startKafka()) },
  rabbitmq: { name: "RabbitMQ", open: serverOf(() => startRabbitmq()) },
  nats: { name: "JetStream", open: serverOf(() => startNats()) },
  redis: { name: "Redis", open: serverOf(() => startRedis()) },
  embedded: { name: "the embedded broker", open: async () => folder() },
  none: { name: "a sink that acknowledges at once", open: async () => folder() },
} as const;

export type BrokerName = keyof typeof brokers;

/** Databases by name. The PostgreSQL server is shared, but each place has its own database there. */
export const databases = {
  postgres: {
    name: "PostgreSQL",
    open: async (ground: Ground): Promise<Place> => {
      const url = await ground.database("side");
      return { url, pid: ground.postgres.pid, [Symbol.asyncDispose]: () => ground.dropDatabase(url) };
    },
  },
  mariadb: { name: "MariaDB", open: serverOf(() => startMariadb()) },
  sqlite: { name: "SQLite", open: async () => folder() },
} as const;

export type DatabaseName = keyof typeof databases;
