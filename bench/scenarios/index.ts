import type { Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";
import { add } from "./add.ts";
import { backlog } from "./backlog.ts";
import { blocked } from "./blocked.ts";
import { debezium } from "./debezium.ts";
import { drain } from "./drain.ts";
import { growth } from "./growth.ts";
import { horizon } from "./horizon.ts";
import { hot } from "./hot.ts";
import { idle } from "./idle.ts";
import { latency } from "./latency.ts";
import { peers } from "./peers.ts";
import { purge } from "./purge.ts";
import { status } from "./status.ts";
import { subscriber } from "./subscriber.ts";

interface Scenario {
  readonly run: (ground: Ground) => AsyncIterable<Finding> | Promise<readonly Finding[]>;
  /** Only with --long, or by name. */
  readonly long?: boolean;
}

/** In the order of a run. */
export const scenarios: Readonly<Record<string, Scenario>> = {
  add: { run: add },
  drain: { run: drain },
  latency: { run: latency },
  subscriber: { run: subscriber },
  idle: { run: idle },
  peers: { run: peers },
  horizon: { run: (ground) => horizon((name) => ground.database(name), ground.size(600_000)) },
  blocked: { run: async (ground) => blocked(await ground.database("blocked"), ground.size(100_000)) },
  backlog: { run: async (ground) => backlog(await ground.database("backlog"), ground.quick ? 50_000 : 1_000_000) },
  hot: { run: async (ground) => hot(await ground.database("hot"), ground.quick ? 300 : 1_500) },
  purge: { run: async (ground) => purge(await ground.database("purge"), ground.quick ? 5 : 40) },
  status: { run: async (ground) => status(await ground.database("status"), ground.quick ? 300_000 : 20_000_000) },
  growth: { run: growth, long: true },
  debezium: { run: debezium, long: true },
};
