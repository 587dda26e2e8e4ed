import type { Ask } from "../../contracts/adapter.ts";
import type { Clock } from "../../core/clock.ts";
import { asError, isWaybillError } from "../../core/errors.ts";
import type { Draft } from "../../core/event.ts";
import { uuidv7 } from "../../core/ids.ts";
import { seededRandom, systemRandom, type Random } from "../../core/random.ts";
import type { Recorder, Written } from "../judge/history.ts";
import type { Ground, WriterWork } from "./ground.ts";
import type { WriterTask } from "./task.ts";
import {
  aggregateName,
  aggregatesOf,
  canaryHeader,
  contentOf,
  countHeader,
  planOf,
  shaOfDraft,
  type Aggregate,
  type Plan,
} from "./workload.ts";

interface Writing {
  readonly task: WriterTask;
  readonly ground: Ground;
  readonly recorder: Recorder;
  readonly clock: Clock;
  did(count: number): void;
  say(line: object): void;
}

const rolledBack = new Error("rolled back on purpose");
/** How long a delayed event waits. */
const delayMs = 300;
const failedMs = 150;

/** One transaction after the other, until the signal aborts. */
export async function write(writing: Writing, signal: AbortSignal): Promise<void> {
  const { task, clock } = writing;
  const random = seededRandom(task.seed);
  const aggregates = aggregatesOf(task.place, task.load);
  for (let nth = 1; !signal.aborted; nth++) {
    const kept = await transact(writing, `${task.name}-${nth}`, planOf(random, aggregates, task.load), random);
    await clock.sleep(kept ? task.load.pauseMs * (0.5 + random.next()) : failedMs, signal);
  }
}

/** False when the transaction failed, unless it was rolled back on purpose. */
async function transact(writing: Writing, tx: string, plan: Plan, random: Random): Promise<boolean> {
  const { recorder, ground } = writing;
  let invoked = false;
  let count = 0;
  try {
    await ground.transaction(async (work) => {
      const { written, drafts } = await change(writing, work, plan, random);
      // Recorded before any of them could be seen.
      recorder.write("invoked", { op: "add", tx, events: written });
      invoked = true;
      count = drafts.length;
      if (plan.buffered) work.events.add(drafts);
      else await work.add(drafts);
      await writing.clock.sleep(plan.sleepMs);
      if (plan.ends === "roll back") throw rolledBack;
    });
    recorder.write("ok", { op: "add", tx });
    writing.did(count);
    return true;
  } catch (error) {
    // After any error but COMMIT_UNKNOWN, Waybill promises that the transaction was not kept.
    if (invoked) recorder.write(isWaybillError(error, "COMMIT_UNKNOWN") ? "unknown" : "failed", { op: "add", tx });
    if (error === rolledBack) return true;
    writing.say({ type: "writer.failed", code: isWaybillError(error) ? error.code : null, error: asError(error).message });
    return false;
  }
}

interface Changed {
  readonly written: readonly Written[];
  readonly drafts: readonly Draft[];
}

async function change({ ground, clock, task }: Writing, { ask, add }: WriterWork, plan: Plan, random: Random): Promise<Changed> {
  const { tables } = ground;
  const newId = uuidv7(clock, systemRandom);
  if (plan.elsewhere) {
    await ask(`INSERT INTO ${tables.elsewhere} (note) VALUES (?)`, [task.name]);
    await clock.sleep(plan.sleepMs);
  }
  const made: (Changed & { readonly aggregate: Aggregate })[] = [];
  const make = async (aggregate: Aggregate, events: number): Promise<Changed> => {
    const all: { written: Written; draft: Draft }[] = [];
    for (let i = 0; i < events; i++) all.push(await one(ask, aggregate, random.next() < 0.02));
    const { keyed = 0 } = task.load;
    const drafts = all.flatMap(({ draft }) => {
      if (keyed === 0 || random.next() >= keyed) return [draft];
      const first = { ...draft, idempotencyKey: `key-${draft.id!}` };
      return [first, { ...first, id: newId() }];
    });
    return { written: all.map(({ written }) => written), drafts };
  };
  const one = async (on: Ask, aggregate: Aggregate, delayed: boolean): Promise<{ written: Written; draft: Draft }> => {
    const name = aggregateName(aggregate);
    await on(`UPDATE ${tables.counters} SET n = n + 1 WHERE aggregate = ?`, [name]);
    const [row] = await on(`SELECT n FROM ${tables.counters} WHERE aggregate = ?`, [name]);
    const n = Number(row?.["n"]);
    const id = newId();
    await on(`INSERT INTO ${tables.written} (id, aggregate, n) VALUES (?, ?, ?)`, [id, name, n]);
    const { headers: more, ...content } = contentOf(random, n, task.load);
    const headers = { ...more, [countHeader]: String(n), [canaryHeader]: task.canary };
    // The event is due at the true time, so the writer's clock skew is subtracted.
    const due = delayed ? { availableAt: new Date(clock.now() - (task.skewMs ?? 0) + delayMs) } : {};
    const draft: Draft = { ...aggregate, id, type: "Changed", headers, ...content, ...due };
    const topic = `${aggregate.aggregateType.toLowerCase()}.events`;
    return { written: { id, aggregate: name, topic, n, sha: shaOfDraft(draft), ...(delayed ? { delayed } : {}) }, draft };
  };

  for (const { aggregate, events } of plan.changes) made.push({ aggregate, ...(await make(aggregate, events)) });
  let undone: readonly Written[] = [];
  if (plan.undone > 0) {
    await ask("SAVEPOINT before_doubt");
    const given = await make(made.at(-1)!.aggregate, plan.undone);
    await add(given.drafts);
    await ask("ROLLBACK TO SAVEPOINT before_doubt");
    undone = given.written.map((each) => ({ ...each, undone: true }));
  }
  return { written: [...made.flatMap(({ written }) => written), ...undone], drafts: made.flatMap(({ drafts }) => drafts) };
}
