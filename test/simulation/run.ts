import { createHash } from "node:crypto";
import type { EventRecord } from "../../src/contracts/operator.ts";
import { states, type State } from "../../src/core/event.ts";
import { check, type Judgement } from "../../src/proof/judge/check.ts";
import type { Entry } from "../../src/proof/judge/history.ts";
import type { TimeBounds } from "../../src/proof/judge/isolation.ts";
import type { Copy, Effect, LeftLetter, Reads } from "../../src/proof/judge/reads.ts";
import { consumerName, startCrew, type Crew } from "./crew.ts";
import { startNemesis } from "./nemesis.ts";
import { loadMs, type Plan } from "./plan.ts";
import { topicsOf, type Applied, type Payload } from "./subscribers.ts";
import { canary, createWorld, shaOf, type World } from "./world.ts";

export interface Result extends Judgement {
  readonly plan: Plan;
  /** The same for the same plan, in every process. */
  readonly hash: string;
  readonly history: readonly Entry[];
  readonly steps: number;
  readonly virtualMs: number;
}

const patienceMs = 120_000;
const mostSteps = 400_000;

/** One run: load and faults together, then healing, then until nothing is left to do, then the verdicts. */
export async function run(plan: Plan): Promise<Result> {
  const world = createWorld(plan);
  const { scheduler } = world;
  const crew = startCrew(world);
  for (const [index, transaction] of plan.transactions.entries()) {
    scheduler.after(transaction.at, () => crew.writers[transaction.writer]!.write(`tx-${index}`, transaction));
  }
  const nemesis = startNemesis(world, crew);
  await scheduler.run(loadMs);
  nemesis.heal();
  const healedAt = scheduler.now;
  // A third of the runs redrives what has died, a third discards it, a third leaves it.
  const action = (["redrive", "discard", null] as const)[plan.seed % 3];
  const rescue = async (): Promise<void> => {
    if (action === null || action === undefined) return;
    const { ids } = await world.store.operator[action]({}, { who: "healer", dryRun: false });
    if (ids.length > 0) world.history.push({ at: scheduler.now, process: "healer", phase: "ok", op: "operate", action, ids });
  };
  let again = action === "redrive";
  /** Once: those that no handler takes come back. */
  const redriveLetters = async (): Promise<void> => {
    if (!again) return;
    again = false;
    for (const consumer of plan.knobs.subscribers.keys()) await redriveAll(world, consumerName(consumer));
  };
  while (scheduler.now < healedAt + patienceMs && scheduler.steps < mostSteps) {
    await scheduler.run(scheduler.now + 500);
    if (scheduler.now > healedAt + 1_000) {
      await redriveLetters();
      if (isDone(world)) break;
      await rescue();
    }
  }
  const drainedMs = await drain(world, crew);
  const reads = await readAll(world, drainedMs);
  const judgement = check(world.history, reads, boundsOf(plan));
  const hash = createHash("sha256")
    .update(`${scheduler.trace} ${scheduler.steps} ${JSON.stringify(world.history)} ${JSON.stringify(reads)}`)
    .digest("hex");
  return { ...judgement, plan, hash, history: world.history, steps: scheduler.steps, virtualMs: Math.round(scheduler.now) };
}

/** The verdicts of a plan that do not hold. */
export const broken = async (plan: Plan): Promise<readonly unknown[]> =>
  (await run(plan)).verdicts.filter(({ verdict }) => verdict !== "holds");

/** A relay that takes one event at a time is slow without a fault, too: all of them may come before. */
function boundsOf({ knobs, transactions }: Plan): TimeBounds {
  const events = transactions.reduce((sum, { parts }) => sum + parts.reduce((total, part) => total + part.events.length, 0), 0);
  const batch = Math.min(...knobs.relays.map((relay) => relay.batch));
  const latencyMs = 4_000 + knobs.leaseMs + (10 * (knobs.latencyMs + (knobs.distanceMs ?? 0)) * events) / batch;
  return { latencyMs, recoveryMs: 5_000 + 3 * knobs.leaseMs, lingerMs: 2 * knobs.leaseMs, mayBeIdle: true, effectsApart: true };
}

async function redriveAll({ inbox, history, scheduler }: World, consumer: string): Promise<void> {
  const action = "redrive";
  const { ids } = await inbox.letters.redrive({ consumer }, { who: "healer", dryRun: false });
  if (ids.length > 0) history.push({ at: scheduler.now, process: "healer", phase: "ok", op: "operate", action, ids, consumer });
}

/** Nothing to claim, nothing in flight, everything that was delivered acknowledged. */
function isDone(world: World): boolean {
  const { store, broker, plan, inbox } = world;
  const { tables } = store.database.image;
  const dead = new Set([...tables.events.values()].filter(({ status }) => status === "DEAD").map(({ aggregate }) => aggregate));
  for (const { status, aggregate } of tables.events.values()) {
    if (status === "PENDING" || status === "FAILED") return false;
    if (status === "BLOCKED" && !dead.has(aggregate)) return false;
    if (status === "DEAD" && plan.seed % 3 !== 2) return false;
  }
  if (tables.windows.size > 0 || store.database.openTransactions() > 0) return false;
  if ([...inbox.database.image.tables.letters.values()].some(({ redrivenAt }) => redrivenAt !== null)) return false;
  const handled = new Set((inbox.database.image.effects as Applied[]).map(({ consumer, id }) => `${consumer} ${id}`));
  const letters = new Set(lettersOf(world).map(({ consumer, id }) => `${consumer} ${id}`));
  return plan.knobs.subscribers.every((_, index) =>
    broker
      .topicNames()
      .filter((topic) => !topic.endsWith(".dead"))
      .every((topic) =>
        broker.messages(topic).every(({ attributes }) => {
          const key = `${consumerName(index)} ${attributes["id"]}`;
          return handled.has(key) || letters.has(key);
        }),
      ),
  );
}

/** A clean stop of everybody; how long it took. */
async function drain({ scheduler }: World, crew: Crew): Promise<number> {
  const started = scheduler.now;
  let left = 0;
  for (const slot of crew.relays) {
    const { life } = slot;
    if (life === null) continue;
    slot.life = null;
    // One whose step never ends cannot finish what it holds.
    if (life.process.hung) {
      life.process.crash();
      continue;
    }
    left++;
    void life.relay.drain().then(() => left--);
  }
  for (const slot of crew.subscribers) {
    const { life } = slot;
    if (life === null) continue;
    left++;
    slot.life = null;
    void life.service.drain().then(() => left--);
  }
  while (left > 0 && scheduler.now < started + 30_000) await scheduler.run(scheduler.now + 100);
  return scheduler.now - started;
}

function lettersOf({ broker, inbox }: World): LeftLetter[] {
  const onTopics = broker
    .topicNames()
    .filter((topic) => topic.endsWith(".dead"))
    .flatMap((topic) =>
      broker.messages(topic).map(({ headers, attributes }) => ({ consumer: headers["waybill-dead-consumer"]!, id: attributes["id"]! })),
    );
  const inInbox = [...inbox.database.image.tables.letters.values()].map(({ row: { consumer, id }, redrivenAt }) => ({
    consumer,
    id,
    marked: true,
    waits: redrivenAt !== null,
  }));
  return [...onTopics, ...inInbox];
}

async function readAll(world: World, drainedMs: number): Promise<Reads> {
  const { store, inbox, broker, scheduler, plan } = world;
  const records = await store.operator.list({ limit: Infinity });
  const truth = Object.fromEntries(states.map((state) => [state, 0])) as Record<State, number>;
  for (const { status } of store.database.image.tables.events.values()) truth[status]++;
  return {
    written: [...store.database.image.written.values()] as { id: string; aggregate: string; n: number }[],
    broker: broker
      .topicNames()
      .filter((topic) => !topic.endsWith(".dead"))
      .flatMap((topic) => broker.messages(topic).map((message): Copy => copyOf(topic, message))),
    consumers: plan.knobs.subscribers.map((_, index) => ({ consumer: consumerName(index), topics: topicsOf(world) })),
    effects: inbox.database.image.effects as Effect[],
    letters: lettersOf(world),
    outbox: records.map((record: EventRecord) => ({
      id: record.id,
      aggregate: `${record.aggregateType} ${record.aggregateId}`,
      state: record.state,
    })),
    status: { said: (await store.operator.status()).states, truth },
    samples: [
      { what: "steps of the run", value: scheduler.steps, bound: mostSteps - 1 },
      { what: "a clean stop in ms", value: drainedMs, bound: 29_000 },
    ],
    outputs: [{ where: "the path events", text: world.outputs.join("\n") }],
    canaries: [canary],
  };
}

function copyOf(topic: string, { attributes, key, data }: ReturnType<World["broker"]["messages"]>[number]): Copy {
  const { n } = JSON.parse(Buffer.from(data).toString()) as Payload;
  return { topic, id: attributes["id"]!, aggregate: `${attributes["aggregatetype"]} ${key}`, n, sha: shaOf(data) };
}
