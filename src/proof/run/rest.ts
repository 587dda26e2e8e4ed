import type { Clock } from "../../core/clock.ts";
import { inWords } from "../../core/in-words.ts";
import type { Judgement } from "../judge/check.ts";
import type { Verdict } from "../judge/verdict.ts";
import type { Access } from "./access.ts";
import { openGround } from "./ground.ts";
import { readStore, type StoreReads } from "./reads.ts";
import type { RunPlace } from "./task.ts";

interface Resting {
  readonly access: Access;
  readonly direct: () => RunPlace;
  readonly clock: Clock;
  readonly consumers: readonly string[];
  /** The store may have forgotten effects, which nothing brings back. */
  readonly forgets: boolean;
  /** Published rows may leave the outbox: what was written and does not wait there has been published. */
  readonly drops: boolean;
}

/** Waits until everything that may be published is, and has had its effect. False when that takes too long. */
export async function rest(
  { access, direct, clock, consumers, forgets, drops }: Resting,
  withinMs: number,
  signal: AbortSignal,
): Promise<boolean> {
  await using ground = await openGround(access, direct());
  const { ask, tables } = ground;
  const count = async (sql: string): Promise<number> => Number(Object.values((await ask(sql))[0] ?? {})[0] ?? 0);
  const open = `SELECT count(*) AS n FROM ${tables.outbox} WHERE status IN ('PENDING', 'FAILED')`;
  // Events behind a DEAD one wait for an operator, and do not move by themselves.
  const blocked = `SELECT count(*) AS n FROM ${tables.outbox} WHERE status = 'BLOCKED' AND (aggregate_type, aggregate_id) NOT IN (
    SELECT aggregate_type, aggregate_id FROM ${tables.outbox} WHERE status = 'DEAD')`;
  const due = `SELECT count(*) AS n FROM ${tables.outbox} WHERE status = 'PUBLISHED'`;
  const written = `SELECT count(*) AS n FROM ${tables.written}`;
  const waiting = `SELECT count(*) AS n FROM ${tables.outbox} WHERE status <> 'PUBLISHED'`;
  const done = `SELECT count(*) AS n FROM ${tables.effects}`;
  let before = -1;
  for (
    const until = clock.monotonic() + withinMs;
    clock.monotonic() < until && !signal.aborted;
    await clock.sleep(forgets ? 3_000 : 250, signal)
  ) {
    try {
      if ((await count(open)) > 0 || (await count(blocked)) > 0) continue;
      const now = await count(done);
      const dueNow = drops ? (await count(written)) - (await count(waiting)) : await count(due);
      if (now >= dueNow * consumers.length || (forgets && now === before)) return true;
      before = now;
    } catch {
      // The store may be about to come back.
    }
  }
  return false;
}

/** What still waited when everything should have come to rest. */
interface Waits {
  readonly text: string;
  readonly times: number;
  readonly ids: readonly string[];
}

export async function waitsIn({ access, direct, consumers }: Resting, withinMs: number, after: string): Promise<Waits> {
  const late = `it had not come to rest ${inWords(Math.round(withinMs / 100) * 100)} after ${after}`;
  try {
    await using ground = await openGround(access, direct());
    const { told, ids } = waiting(await readStore(ground), consumers);
    const what = told.length === 0 ? "a moment later nothing waited any more" : `${told.join(", ")} still waited`;
    return { text: `${late}: ${what}`, times: Math.max(1, ids.length), ids: ids.slice(0, 5) };
  } catch {
    return { text: `${late}, and what still waited could not be read`, times: 1, ids: [] };
  }
}

function waiting({ outbox, effects }: StoreReads, consumers: readonly string[]): { told: readonly string[]; ids: readonly string[] } {
  const dead = new Set(outbox?.filter(({ state }) => state === "DEAD").map(({ aggregate }) => aggregate));
  const done = new Set(effects?.map(({ consumer, id }) => `${consumer} ${id}`));
  const found = new Map<string, string[]>();
  const note = (what: string, id: string): void => {
    const ids = found.get(what) ?? [];
    ids.push(id);
    found.set(what, ids);
  };
  for (const { id, state, aggregate } of outbox ?? []) {
    if (state === "PENDING" || state === "FAILED" || (state === "BLOCKED" && !dead.has(aggregate))) note(state, id);
    if (state !== "PUBLISHED") continue;
    for (const consumer of consumers) if (!done.has(`${consumer} ${id}`)) note(`PUBLISHED without an effect at ${consumer}`, id);
  }
  return { told: [...found].map(([what, ids]) => `${ids.length} ${what}`), ids: [...found.values()].flat() };
}

/** What had to come to rest by itself, and did not, was stuck, even if new processes have cured it since. */
export function stuck({ verdicts }: Judgement, waits: Waits | null): Judgement {
  const judged = verdicts.map((verdict): Verdict => {
    if (verdict.invariant !== "nothing stuck" || waits === null) return verdict;
    const { invariant } = verdict;
    const { text, ids, times } = waits;
    if (verdict.verdict !== "broken") return { invariant, verdict: "broken", example: { text, ids }, times };
    const both = { text: `${text}; at the end ${verdict.example.text}`, ids: [...new Set([...verdict.example.ids, ...ids])] };
    return { invariant, verdict: "broken", example: both, times: Math.max(times, verdict.times) };
  });
  return { held: judged.every(({ verdict }) => verdict === "holds"), verdicts: judged };
}
