import { readdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import type { WorkerDuty } from "../../../src/proof/run/workers.ts";
import { aggregateName, type Aggregate } from "../../../src/proof/run/workload.ts";
import { readHistory } from "../../../src/proof/judge/history.ts";
import { insert, made } from "./backlog.ts";
import type { Stage } from "./row.ts";

/** How many aggregates are blocked, each by its first event, and by how many followers each is followed. */
export const followers = 5;
export const keysOf = { postgres: 20_000, mariadb: 6_000, mysql: 6_000, sqlite: 6_000 } as const;
const keysPerTransaction = 80;

/** Of a type and a topic of their own, over all lanes. */
const typeOf = ({ place }: Stage): string => `${place.run}-blocked`;

const counts = async (stage: Stage): Promise<{ readonly dead: number; readonly blocked: number; readonly keys: number }> => {
  const { ground } = stage;
  const [row] = await ground.ask(
    `SELECT coalesce(sum(CASE WHEN status = 'DEAD' THEN 1 ELSE 0 END), 0) AS dead, coalesce(sum(CASE WHEN status = 'BLOCKED' THEN 1 ELSE 0 END), 0) AS blocked,
       count(DISTINCT CASE WHEN status = 'BLOCKED' THEN aggregate_id END) AS held FROM ${ground.tables.outbox} WHERE aggregate_type = '${typeOf(stage)}'`,
  );
  return { dead: Number(row?.["dead"]), blocked: Number(row?.["blocked"]), keys: Number(row?.["held"]) };
};

/** True when every one of them is. */
export async function areBlocked(stage: Stage): Promise<boolean> {
  const keys = keysOf[stage.pair.store];
  const now = await counts(stage);
  return now.dead === keys && now.keys === keys && now.blocked === keys * followers;
}

/** A relay whose broker refuses all of them blocks them, as it would in years; then it goes. */
export async function block(stage: Stage): Promise<void> {
  const keys = Array.from({ length: keysOf[stage.pair.store] }, (_, i): Aggregate => ({
    aggregateType: typeOf(stage),
    aggregateId: `b-${i}`,
  }));
  const scope = { topics: [`${typeOf(stage).toLowerCase()}.events`] };
  stage.fault({ fault: "poison", target: `${keys.length} aggregates`, copies: 0, scope });
  const began = stage.clock.monotonic();
  const seconds = (): number => Math.round((stage.clock.monotonic() - began) / 1_000);
  for (let at = 0; at < keys.length && !stage.signal.aborted; at += keysPerTransaction)
    await insert(
      stage,
      `blocked-${at}`,
      keys.slice(at, at + keysPerTransaction).flatMap((key) => made(stage, key, followers + 1, 0)),
    );
  const written = seconds();
  const duty = stage.dutyOf("relay");
  if (duty.role !== "relay") return;
  const options = { ...duty.options, batch: 500, retry: { delaysMs: [] } };
  await stage.add("blocking-relay", { ...duty, options, poison: keys.map(aggregateName) });
  for (const until = stage.clock.monotonic() + 90_000; !(await areBlocked(stage)); await stage.clock.sleep(500))
    if (stage.signal.aborted || stage.clock.monotonic() > until)
      throw new Error(`they are not all blocked: ${JSON.stringify(await counts(stage))}`);
  await stage.workers.drain("blocking-relay", 10_000);
  stage.note(
    `${keys.length} aggregates with ${followers} events behind each were written in ${written} s and blocked in ${seconds() - written} s`,
  );
}

/** The same load for as long, on tables without blocked rows, and the end of it. */
export async function playCalm(stage: Stage): Promise<void> {
  const names: string[] = [];
  const start = async (role: WorkerDuty["role"], nth: number): Promise<void> => {
    names.push(`calm-${role}-${nth}`);
    await stage.add(`calm-${role}-${nth}`, stage.dutyOf(role, nth));
  };
  for (const role of ["relay", "subscriber", "writer"] as const) for (const nth of [1, 2]) await start(role, nth);
  await stage.clock.sleep(stage.forMs);
  const drain = async (role: WorkerDuty["role"]): Promise<void> => {
    for (const name of names.filter((each) => each.includes(role))) await stage.workers.drain(name, 10_000);
  };
  await drain("writer");
  const left = `SELECT count(*) AS n FROM ${stage.ground.tables.outbox} WHERE status <> 'PUBLISHED'`;
  while (Number((await stage.ground.ask(left))[0]?.["n"]) > 0 && !stage.signal.aborted) await stage.clock.sleep(100);
  await drain("relay");
  await drain("subscriber");
}

/** From the commit to the broker, by what the writers of that name wrote. */
export function latencyOf({ folder }: Stage, writers: string): string {
  const files = readdirSync(folder).filter((name) => name.endsWith(".jsonl") && /writer|relay/.test(name));
  const history = readHistory(files.map((name) => ({ name, text: readFileSync(join(folder, name), "utf8") })));
  const added = new Map<string, readonly string[]>();
  const committed = new Map<string, number>();
  const taken: number[] = [];
  for (const entry of history) {
    if (entry.op === "add" && entry.process.startsWith(writers)) {
      const ids = entry.events?.flatMap(({ id, delayed, undone }) => (delayed === true || undone === true ? [] : [id]));
      if (entry.phase === "invoked") added.set(entry.tx, ids ?? []);
      else if (entry.phase === "ok") for (const id of added.get(entry.tx) ?? []) committed.set(id, entry.at);
    }
    if (entry.op === "publish" && entry.phase === "ok")
      for (const { id } of entry.events) {
        const at = committed.get(id);
        // A relay may be told of the commit before its writer is.
        if (at !== undefined) taken.push(Math.max(0, entry.at - at));
        committed.delete(id);
      }
  }
  taken.sort((a, b) => a - b);
  const share = (of: number): string => `${Math.round(taken[Math.min(taken.length - 1, Math.floor(taken.length * of))] ?? NaN)} ms`;
  return `half of ${taken.length} events within ${share(0.5)}, 99 of 100 within ${share(0.99)}`;
}
