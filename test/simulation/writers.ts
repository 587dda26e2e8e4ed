import { isWaybillError } from "../../src/core/errors.ts";
import type { Draft } from "../../src/core/event.ts";
import { uuidv7 } from "../../src/core/ids.ts";
import { LANES, laneOf } from "../../src/core/lane.ts";
import { createOutbox, type Outbox } from "../../src/outbox/outbox.ts";
import type { Written } from "../../src/proof/judge/history.ts";
import { aggregateTypes, sharedTopic, texts, type EventPlan, type Knobs, type Part, type Transaction } from "./plan.ts";
import { stores } from "./profiles.ts";
import type { Process } from "./scheduler.ts";
import type { SimDb, SimStore, SimTx } from "./store.ts";
import { canary, shaOf, type World } from "./world.ts";

export interface Writer {
  readonly process: Process;
  /** Runs one transaction from begin to its end, beside the others. */
  write(name: string, transaction: Transaction): void;
}

export function startWriter(world: World, name: string): Writer {
  const process = world.scheduler.process(name);
  const store = world.store.open(process);
  const newId = uuidv7(process.clock, world.random(`${name} ids`));
  const outbox = createOutbox({ store, clock: process.clock, newId });
  return {
    process,
    write: (tx, transaction) => void work(world, { process, store, outbox, newId }, tx, transaction).catch(() => undefined),
  };
}

interface Tools {
  readonly process: Process;
  readonly store: SimStore;
  readonly outbox: Outbox<SimDb, SimTx>;
  readonly newId: () => string;
}

async function work(world: World, tools: Tools, name: string, transaction: Transaction): Promise<void> {
  const { plan, record, broker } = world;
  const { process, store } = tools;
  const { db } = store;
  const tx = await db.begin();
  const events: Written[] = [];
  const end = (phase: "ok" | "failed" | "unknown"): void => record(process, phase, { op: "add", tx: name });
  try {
    const pauseMs = Math.min(transaction.openMs, 40) / 2;
    for (const part of transaction.parts) events.push(...(await add(tools, tx, part, pauseMs, plan.knobs, broker.moods.poison)));
    // Where writers go one after the other, whoever takes long keeps everybody waiting: late, but nothing comes twice.
    const over = transaction.openMs > 300 && stores[plan.store].oneWriter ? world.fault("long-writer", name, 0, "all") : null;
    await process.clock.sleep(transaction.openMs);
    over?.();
    record(process, "invoked", { op: "add", tx: name, events });
    if (transaction.rollback) {
      await db.rollback(tx);
      return end("failed");
    }
  } catch (error) {
    record(process, "invoked", { op: "add", tx: name, events });
    await db.rollback(tx);
    end("failed");
    throw error;
  }
  await db.commit(tx).then(
    () => end("ok"),
    (error: unknown) => end(isWaybillError(error, "COMMIT_UNKNOWN") ? "unknown" : "failed"),
  );
}

/**
 * The aggregate's row is locked by its counter before anything is inserted: that is what its order rests on. An Order's
 * events are added at once, all others in one statement each.
 */
async function add(
  tools: Tools,
  tx: SimTx,
  part: Part,
  pauseMs: number,
  { spanning, lanes }: Knobs,
  poison: Map<string, number>,
): Promise<Written[]> {
  const aggregateType = aggregateTypes[part.aggregate % aggregateTypes.length]!;
  const aggregateId = idOf(aggregateType, part.aggregate, lanes ?? LANES);
  const aggregate = `${aggregateType} ${aggregateId}`;
  const savepoint = tx.savepoint();
  const last = await tx.count(aggregate, part.events.length);
  const made = part.events.map((event, index) =>
    draft(tools, { aggregateType, aggregateId }, event, last - part.events.length + index + 1),
  );
  const drafts = made.map(({ draft }) => draft);
  if (part.aggregate % 3 === 0) await tools.outbox.add(tx, drafts);
  else
    for (const [at, one] of drafts.entries()) {
      // The numbers of other transactions come in between.
      if (at > 0 && at === drafts.length - 1) await tools.process.clock.sleep(pauseMs);
      await tools.outbox.add(tx, one);
    }
  for (const { id, n, kind } of made) {
    tx.write(id, { id, aggregate, n });
    if (kind === "refused-twice") poison.set(id, 2);
    if (kind === "refused-for-good") poison.set(id, Infinity);
  }
  if (part.undone) await tx.rollbackTo(savepoint);
  return made.map(({ id, n, kind, sha }) => ({
    id,
    aggregate,
    topic: spanning && kind === "shared" ? sharedTopic : `${aggregateType.toLowerCase()}.events`,
    n,
    sha,
    ...(part.undone ? { undone: true } : {}),
    ...(kind === "delayed" ? { delayed: true } : {}),
  }));
}

/** The first one of its kind that falls into one of the first lanes. */
function idOf(aggregateType: string, aggregate: number, lanes: number): string {
  let id = `a${aggregate}`;
  for (let n = 1; laneOf(aggregateType, id) >= lanes; n++) id = `a${aggregate}-${n}`;
  return id;
}

function draft(
  { process, newId }: Tools,
  aggregate: Pick<Draft, "aggregateType" | "aggregateId">,
  { kind, text }: EventPlan,
  n: number,
): { readonly draft: Draft; readonly id: string; readonly n: number; readonly kind: EventPlan["kind"]; readonly sha: string } {
  const id = newId();
  const payload = { n, kind, text: texts[text], canary };
  return {
    id,
    n,
    kind,
    sha: shaOf(JSON.stringify(payload)),
    draft: {
      ...aggregate,
      id,
      type: kind === "shared" ? "shared" : "Changed",
      payload,
      ...(kind === "keyed" ? { idempotencyKey: `key of ${id}` } : {}),
      ...(kind === "delayed" ? { availableAt: new Date(process.clock.now() + 1_000 + 50 * n) } : {}),
    },
  };
}
