// The measuring loop that all sides share.
import { clearInterval, setInterval } from "node:timers";
import { ownCpu, treeCpu, treeRss } from "./cpu.mjs";

/** Milliseconds of a clock that all processes of the machine share. */
export const now = () => Number(process.hrtime.bigint()) / 1e6;

/**
 * Runs `work` and returns what one event of it cost. `events` is their number, or a function that returns it afterwards.
 * `position` reads the database's position in its log. `helpers` are processes whose cost is ours, such as further relays. With `apart`,
 * only the helpers' cost is: this process only watches.
 */
export async function measured(task, work, { events = task.events, position = null, helpers = [], apart = false } = {}) {
  let rss = 0;
  const look = () => (rss = Math.max(rss, apart ? 0 : process.memoryUsage.rss(), ...helpers.map(treeRss)));
  const sampling = setInterval(look, 100);
  const take = () => ({
    at: now(),
    own: (apart ? 0 : ownCpu()) + helpers.reduce((sum, pid) => sum + treeCpu(pid), 0),
    database: treeCpu(task.processes.database),
    broker: treeCpu(task.processes.broker),
  });
  const wal = await position?.();
  const before = take();
  await work();
  const after = take();
  const walAfter = await position?.();
  clearInterval(sampling);
  look();
  const count = typeof events === "function" ? events() : events;
  const each = (what) => (after[what] - before[what]) / count;
  const seconds = (after.at - before.at) / 1_000;
  return {
    perSecond: count / seconds,
    ownMicros: each("own"),
    ...(task.processes.database === null ? {} : { databaseMicros: each("database") }),
    ...(task.processes.broker === null ? {} : { brokerMicros: each("broker") }),
    ...(position === null ? {} : { walBytes: (walAfter - wal) / count }),
    rssMb: rss / 2 ** 20,
    seconds,
  };
}

/** A counter. `plus(some)` resolves when the count is `some` above the last goal. */
export function createCount() {
  let [count, goal, reached] = [0, Infinity, () => undefined];
  return {
    add(some) {
      count += some;
      if (count >= goal) reached();
    },
    plus(some) {
      return new Promise((resolve) => {
        [goal, reached] = [goal === Infinity ? some : goal + some, resolve];
        if (count >= goal) resolve();
      });
    },
  };
}

/** Ends the round if the event has an error: such a round measures nothing. */
export function refuse(event) {
  if (!("error" in event)) return;
  process.stderr.write(`${event.type}: ${event.error}\n`);
  process.exit(1);
}

export function percentile(values, share) {
  const sorted = values.toSorted((a, b) => a - b);
  return sorted[Math.min(sorted.length - 1, Math.floor(sorted.length * share))];
}
