import type { Ground } from "../measure/ground.ts";
import type { Finding } from "../report/finding.ts";
import { add } from "./add.ts";
import { backlog } from "./backlog.ts";
import { blocked } from "./blocked.ts";
import { debezium } from "./debezium.ts";
import { drain } from "./drain.ts";
import { growth, pending, published } from "./growth.ts";
import { horizon } from "./horizon.ts";
import { hostile } from "./hostile.ts";
import { hot } from "./hot.ts";
import { idle } from "./idle.ts";
import { latency } from "./latency.ts";
import { peers } from "./peers.ts";
import { purge } from "./purge.ts";
import { status } from "./status.ts";
import { subscriber } from "./subscriber.ts";

interface Scenario {
  readonly run: (ground: Ground) => AsyncIterable<Finding> | Promise<readonly Finding[]>;
  /** Its duration on a machine with two cores. Comparisons have their own limits; the scenarios stay within `mostMinutes`. */
  readonly minutes: number;
  /** Only with --long, or by name. */
  readonly long?: boolean;
}

/** The limits for the default set together, and for each scenario. */
export const mostMinutes = { together: 40, each: 10 };

/** In the order of a run. */
export const scenarios: Readonly<Record<string, Scenario>> = {
  add: { run: add, minutes: 6.5 },
  drain: { run: drain, minutes: 7.5 },
  latency: { run: latency, minutes: 8 },
  subscriber: { run: subscriber, minutes: 3.5 },
  idle: { run: idle, minutes: 3.5 },
  peers: { run: peers, minutes: 3 },
  horizon: { run: (ground) => horizon((name) => ground.database(name), ground.size(600_000)), minutes: 1.5 },
  blocked: { run: async (ground) => blocked(await ground.database("blocked"), ground.size(100_000)), minutes: 0.5 },
  backlog: { run: async (ground) => backlog(await ground.database("backlog"), ground.quick ? 50_000 : 1_000_000), minutes: 0.5 },
  hot: { run: async (ground) => hot(await ground.database("hot"), ground.quick ? 300 : 1_500), minutes: 1.5 },
  hostile: { run: hostile, minutes: 8, long: true },
  purge: { run: async (ground) => purge(await ground.database("purge"), ground.quick ? 5 : 40), minutes: 1 },
  status: { run: async (ground) => status(await ground.database("status"), ground.quick ? 300_000 : 3_000_000), minutes: 2.5 },
  growth: { run: growth, minutes: 7, long: true },
  published: { run: published, minutes: 8, long: true },
  pending: { run: pending, minutes: 6, long: true },
  debezium: { run: debezium, minutes: 9, long: true },
};
