import { uuidv7 } from "../../../src/core/ids.ts";
import { systemRandom } from "../../../src/core/random.ts";
import type { Draft } from "../../../src/core/event.ts";
import type { Written } from "../../../src/verify/history.ts";
import { typesOf } from "../../../src/cli/verify/ground.ts";
import {
  aggregateName,
  aggregatesOf,
  bytesOf,
  canaryHeader,
  countHeader,
  shaOf,
  type Aggregate,
} from "../../../src/cli/verify/workload.ts";
import { processPairs, storePairs } from "./pairs.ts";
import type { Row, Stage } from "./row.ts";

const perTransaction = 500;

/** So many events of an aggregate, in transactions of five hundred: as a writer would, but quicker. */
async function add(stage: Stage, aggregate: Aggregate, events: number, from: number): Promise<void> {
  const { ground, recorder, clock } = stage;
  const { tables } = ground;
  const newId = uuidv7(clock, systemRandom);
  const name = aggregateName(aggregate);
  const topic = `${aggregate.aggregateType.toLowerCase()}.events`;
  for (let done = 0; done < events; done += perTransaction) {
    const made = Array.from({ length: Math.min(perTransaction, events - done) }, (_, i): { written: Written; draft: Draft } => {
      const n = from + done + i + 1;
      const payload = { n };
      const id = newId();
      const headers = { [countHeader]: String(n), [canaryHeader]: "canary-7f3a9c51" };
      return {
        written: { id, aggregate: name, topic, n, sha: shaOf(bytesOf(payload)) },
        draft: { ...aggregate, id, type: "Changed", payload, headers },
      };
    });
    const tx = `backlog-${name}-${done}`;
    await ground.transaction(async ({ ask, add: insert }) => {
      await ask(`UPDATE ${tables.counters} SET n = n + ? WHERE aggregate = ?`, [made.length, name]);
      for (let at = 0; at < made.length; at += 100) {
        const some = made.slice(at, at + 100).map(({ written }) => written);
        const values = some.flatMap(({ id, aggregate: of, n }) => [id, of, n]);
        await ask(`INSERT INTO ${tables.written} (id, aggregate, n) VALUES ${some.map(() => "(?, ?, ?)").join(", ")}`, values);
      }
      recorder.write("invoked", { op: "add", tx, events: made.map(({ written }) => written) });
      await insert(made.map(({ draft }) => draft));
    });
    recorder.write("ok", { op: "add", tx });
  }
}

const load = { aggregates: 8, hot: 0.25, pauseMs: 12, sleepMs: 40, bytes: 80, hard: 0.3, large: 0.002 };
const backlog = 8_000;
/** As they are unless configured: a window of many events of one aggregate takes its time. */
const usual = { leaseMs: 10_000, publishTimeoutMs: 5_000 };
const blockedOf = { postgres: 100_000, mariadb: 30_000, sqlite: 30_000 } as const;

const poisonedOf = ({ place }: Stage): Aggregate => ({ aggregateType: typesOf(place)[1]!, aggregateId: "a-7" });

export const scaleRows: readonly Row[] = [
  {
    number: 36,
    title: "payloads that are hard to carry",
    injected:
      "empty, NUL, half a character, 4-byte UTF-8, 2^53+1, raw bytes, __proto__, and as large as allowed: every event is one of them",
    pairs: processPairs,
    prepare: () => ({ load: { ...load, hard: 1, large: 0.01 } }),
    async inject(stage) {
      await stage.rest();
      stage.once();
    },
  },
  {
    number: 37,
    title: "a backlog",
    injected: `${backlog} events are waiting when the relays start, scaled down from a million; then one relay is killed`,
    pairs: storePairs,
    prepare: () => ({
      restMs: 180_000,
      // What waits in the backlog is late by itself.
      bounds: { latencyMs: 150_000, recoveryMs: 12_000 },
      relay: { batch: 500, ...usual },
      limits: { rssMiB: 500 },
    }),
    async before(stage) {
      for (const aggregate of aggregatesOf(stage.place, load)) await add(stage, aggregate, backlog / 16, 0);
    },
    async inject(stage) {
      await stage.pause(1_500);
      const [victim] = stage.names("relay");
      const fault = stage.fault({ fault: "kill", target: victim!, copies: stage.window });
      stage.workers.kill(victim!);
      fault.ended();
      stage.once();
    },
  },
  {
    number: 38,
    title: "one aggregate has nearly all the events",
    injected: "nine of ten transactions change one aggregate; a relay and a subscriber are killed",
    pairs: processPairs,
    prepare: () => ({ load: { ...load, hot: 0.9 } }),
    async inject(stage) {
      for (const role of ["relay", "subscriber"] as const) {
        await stage.pause(2_500);
        const [victim] = stage.names(role);
        const fault = stage.fault({ fault: "kill", target: victim!, copies: role === "relay" ? stage.window : 0 });
        stage.workers.kill(victim!);
        fault.ended();
        stage.once();
      }
    },
  },
  {
    number: 39,
    title: "a hundred thousand blocked events",
    injected: "one aggregate's first event is refused; 100,000 follow it (30,000 on MariaDB and SQLite) while the others go on",
    pairs: storePairs,
    prepare: () => ({
      relay: { batch: 100, ...usual, retry: { delaysMs: [20, 40] } },
      crew: { writers: 2, relays: 0, subscribers: 2 },
      limits: { rssMiB: 500 },
      restMs: 120_000,
    }),
    async before(stage) {
      const poisoned = poisonedOf(stage);
      stage.fault({ fault: "poison", target: aggregateName(poisoned), copies: 0, scope: { aggregates: [aggregateName(poisoned)] } });
      await add(stage, poisoned, blockedOf[stage.pair.store], 0);
    },
    async inject(stage) {
      const duty = stage.dutyOf("relay");
      for (const name of ["poisoned-relay-1", "poisoned-relay-2"])
        if (duty.role === "relay") await stage.add(name, { ...duty, poison: [aggregateName(poisonedOf(stage))] });
      await stage.rest();
      const { states } = await stage.ground.store.operator.status();
      stage.note(`DEAD ${states.DEAD}, BLOCKED ${states.BLOCKED}`);
      if (states.BLOCKED > 1_000) stage.once();
    },
  },
];
