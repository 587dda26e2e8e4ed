import { describe, expect, test } from "vitest";
import {
  kafkaBinaries,
  mariadbBinaries,
  mysqlBinaries,
  natsBinary,
  pgbouncerBinary,
  postgresBinaries,
  rabbitmqBinaries,
  redisBinary,
} from "../../scripts/servers.mjs";

/** Each server that tests may ask for, and how its programs are found or fetched. */
const servers = {
  postgres: () => postgresBinaries(15),
  postgres14: () => postgresBinaries(14),
  postgres16: () => postgresBinaries(16),
  postgres17: () => postgresBinaries(17),
  postgres18: () => postgresBinaries(18),
  pgbouncer: pgbouncerBinary,
  kafka: kafkaBinaries,
  mariadb: () => mariadbBinaries(),
  mariadb118: () => mariadbBinaries("11.8"),
  nats: () => natsBinary(),
  nats210: () => natsBinary("2.10"),
  natsNewest: () => natsBinary("newest"),
  rabbitmq: () => rabbitmqBinaries(),
  rabbitmq4: () => rabbitmqBinaries(4),
  rabbitmqNewest: () => rabbitmqBinaries("newest"),
  redis: () => redisBinary(),
  redis8: () => redisBinary("redis-8"),
  valkeyNewest: () => redisBinary("valkey-newest"),
  mysql: () => mysqlBinaries(),
  mysql80: () => mysqlBinaries("8.0"),
} as const;

/** These come from a Debian release that moves: one that is gone is a skip, unless WAYBILL_REQUIRE names it. */
const moving: readonly string[] = ["natsNewest", "rabbitmqNewest", "valkeyNewest", "mysql"];

export type ServerName = keyof typeof servers;

/** Null when the server can be had, and otherwise why not. Fetches its programs when they are not there. */
export async function available(name: ServerName): Promise<string | null> {
  try {
    await servers[name]();
    return null;
  } catch (error) {
    return (error as Error).message.trim();
  }
}

interface Lack {
  readonly name: ServerName;
  readonly why: string;
}

/**
 * A `describe` that needs servers. Where one cannot be had, its tests are skipped aloud, or fail when WAYBILL_REQUIRE names the server.
 * Await it at the top of a test file.
 */
export async function describeWith(names: ServerName | readonly ServerName[], title: string, body: () => void): Promise<void> {
  const lacks: Lack[] = [];
  for (const name of [names].flat()) {
    const why = await available(name);
    if (why !== null) lacks.push({ name, why });
  }
  const { verdict, told } = judge(lacks, process.env["WAYBILL_REQUIRE"] ?? "");
  switch (verdict) {
    case "run":
      return void describe(title, body);
    case "skip":
      console.warn(`skipped: ${title}: ${told}`);
      return void describe(title, () => {
        test.skip(told.split("\n")[0] ?? told);
      });
    case "fail":
      return void describe(title, () => {
        test("has the servers that WAYBILL_REQUIRE names", () => expect.fail(told));
      });
  }
}

/** What becomes of tests for whose servers these are the lacks. `required` is a list of names; `all` is every server that we can start. */
export function judge(lacks: readonly Lack[], required: string): { verdict: "run" | "skip" | "fail"; told: string } {
  const every = [...Object.keys(servers), "node24"]; // test/path/newest-node.slow.test.ts asks for that one
  const asked = required.split(",").flatMap((name) => name.trim() || []);
  for (const name of asked) {
    if (name !== "all" && !every.includes(name))
      throw new Error(`WAYBILL_REQUIRE names ${name}, which is none of ${every.join(", ")}, all`);
  }
  const needed = ({ name }: Lack): boolean => asked.includes(name) || (asked.includes("all") && !moving.includes(name));
  const told = lacks.map(({ name, why }) => `${name}: not to be had: ${why}`).join("; ");
  return { verdict: lacks.length === 0 ? "run" : lacks.some(needed) ? "fail" : "skip", told };
}

interface External {
  url(database?: string): string;
}

/** The server that WAYBILL_TEST_<NAME>_URL names; a database's user may create databases. */
export function outside(name: "postgres" | "mysql" | "kafka" | "rabbitmq" | "nats" | "redis"): External | null {
  const given = process.env[`WAYBILL_TEST_${name.toUpperCase()}_URL`] ?? "";
  if (given === "") return null;
  return {
    url: (database) => {
      if (database === undefined) return given;
      const url = new URL(given);
      url.pathname = `/${encodeURIComponent(database)}`;
      return url.href;
    },
  };
}
