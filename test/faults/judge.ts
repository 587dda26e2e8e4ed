import { expect } from "vitest";
import type { Status } from "../../src/contracts/operator.ts";
import { states } from "../../src/core/event.ts";
import { LANES } from "../../src/core/lane.ts";
import { until } from "./processes.ts";
import type { Scene, Sql, SqlRow } from "./scene.ts";

/** Each question answers with what breaks the promise, so that a failure names it; all of them ask tables and log only. */
const questions = {
  "the writers' ledger is whole": `
    SELECT c.aggregate_type, c.aggregate_id, c.v, count(w.n) AS events, max(w.n) AS last
    FROM counters c LEFT JOIN written w USING (aggregate_type, aggregate_id)
    GROUP BY 1, 2 HAVING events <> c.v OR coalesce(last, 0) <> c.v`,
  "every committed event is in the outbox": "SELECT id FROM written EXCEPT SELECT id FROM outbox",
  "nothing else is in the outbox": "SELECT id FROM outbox EXCEPT SELECT id FROM written",
  "nothing else is in the log": "SELECT id FROM log EXCEPT SELECT id FROM written",
  "nothing else has an effect": "SELECT event_id FROM effects EXCEPT SELECT id FROM written",
  "nothing of a rolled-back transaction is anywhere": `
    SELECT id FROM log WHERE doomed IS NOT NULL UNION ALL SELECT event_id FROM effects WHERE doomed
    UNION ALL SELECT id FROM outbox WHERE payload ->> 'doomed' IS NOT NULL`,
  "the log holds what was written": `
    SELECT l.id, l.n, w.n AS was FROM log l JOIN written w USING (id)
    WHERE (l.aggregate_type, l.aggregate_id, l.n) IS NOT (w.aggregate_type, w.aggregate_id, w.n)`,
  "first deliveries of an aggregate are 1, 2, 3 …": `
    WITH firsts AS (SELECT id, min("offset") AS at FROM log GROUP BY id),
         places AS (SELECT w.aggregate_id, w.n, f.at, row_number() OVER (PARTITION BY w.aggregate_type, w.aggregate_id ORDER BY f.at) AS place
                    FROM firsts f JOIN written w USING (id))
    SELECT * FROM places WHERE n <> place ORDER BY at LIMIT 10`,
  "what is marked as published is in the log": `
    SELECT id FROM outbox WHERE status = 'PUBLISHED' EXCEPT SELECT id FROM log`,
} as const;

/** True at any moment, under any faults. */
export function expectSound({ sql }: Scene): void {
  for (const [promise, question] of Object.entries(questions)) expect(sql(question), promise).toEqual([]);
}

/** All of the above, and every committed event has reached the log and is settled. */
export function expectAllPublished(scene: Scene): void {
  expectSound(scene);
  expect(scene.sql("SELECT id FROM written EXCEPT SELECT id FROM log"), "nothing is lost").toEqual([]);
  expect(
    scene.sql("SELECT seq, status, retry_count, last_error FROM outbox WHERE status <> 'PUBLISHED' LIMIT 10"),
    "all is settled",
  ).toEqual([]);
}

/** Waits for every event of these to be settled as published. */
export async function untilPublished({ one, sql }: Scene, withinMs = 120_000, which = "true"): Promise<void> {
  const left = `SELECT count(*) FROM outbox WHERE status <> 'PUBLISHED' AND ${which}`;
  await until(
    "everything is published",
    () => one(left) === 0,
    withinMs,
    () => statusTruth(sql),
  );
}

/** Every event has one effect, each aggregate's in order. */
export function expectOneEffectEach({ sql }: Scene): void {
  expect(sql("SELECT id FROM written EXCEPT SELECT event_id FROM effects"), "no effect is lost").toEqual([]);
  expect(sql("SELECT event_id, count(*) AS effects FROM effects GROUP BY event_id HAVING effects > 1"), "one effect each").toEqual([]);
  const disorder = sql(
    `SELECT * FROM (SELECT pos, aggregate_id, n, row_number() OVER (PARTITION BY aggregate_type, aggregate_id ORDER BY pos) AS place FROM effects)
     WHERE n <> place ORDER BY pos LIMIT 10`,
  );
  expect(disorder, "effects of an aggregate are 1, 2, 3 …").toEqual([]);
}

/** Copies beyond the first: of the event that has most, and in total. */
export function duplicates({ sql }: Scene): { readonly most: number; readonly total: number } {
  const [row] = sql(
    "SELECT coalesce(max(copies), 1) - 1 AS most, coalesce(sum(copies - 1), 0) AS total FROM (SELECT count(*) AS copies FROM log GROUP BY id)",
  );
  return { most: Number(row?.["most"]), total: Number(row?.["total"]) };
}

/** Promise D: each fault may double what was in one relay's windows, and no event twice. */
export function expectFewDuplicates(scene: Scene, faults: number, window: number): void {
  const { most, total } = duplicates(scene);
  expect(most, `an event has at most one copy more for each of ${faults} faults`).toBeLessThanOrEqual(faults);
  expect(total, `copies - 1 <= ${faults} faults x ${window}`).toBeLessThanOrEqual(faults * window);
}

/** What status has to say, asked in plain SQL. Ages are left out: they move while one looks. */
export function statusTruth(sql: Sql): object {
  const now = new Date().toISOString();
  const number = (text: string): number => Number(Object.values(sql(text)[0] ?? {})[0]);
  const publishing = `SELECT j.value AS seq FROM waybill_windows w JOIN json_each(w.seqs) j
    JOIN waybill_lanes l ON l.lane = w.lane AND l.owner = w.relay AND l.epoch = w.epoch
    WHERE w.relay IN (SELECT relay FROM waybill_relays WHERE expires_at > '${now}')`;
  const counts = sql(
    `SELECT CASE WHEN status IN ('PENDING', 'FAILED') AND seq IN (${publishing}) THEN 'PUBLISHING' ELSE status END AS state, count(*) AS n FROM outbox GROUP BY 1`,
  );
  const owned = number(`SELECT count(*) FROM waybill_lanes WHERE owner IN (SELECT relay FROM waybill_relays WHERE expires_at > '${now}')`);
  return {
    states: Object.fromEntries(states.map((state) => [state, Number(counts.find((row) => row["state"] === state)?.["n"] ?? 0)])),
    relays: sql("SELECT relay, expires_at FROM waybill_relays ORDER BY relay").map(({ relay, expires_at: expiresAt }) => ({
      relay,
      live: String(expiresAt) > now,
      expiresAt,
      lanes: sql("SELECT lane FROM waybill_lanes WHERE owner = ? ORDER BY lane", relay as string).map(({ lane }) => lane),
      window: Number(
        sql("SELECT count(*) AS n FROM waybill_windows w JOIN json_each(w.seqs) WHERE w.relay = ?", relay as string)[0]?.["n"],
      ),
    })),
    lanes: { total: LANES, owned, free: LANES - owned },
    holds: {
      aggregates: number("SELECT count(*) FROM waybill_holds"),
      blocked: number("SELECT count(*) FROM outbox WHERE status = 'BLOCKED'"),
    },
    breakers: sql("SELECT destination FROM waybill_destinations GROUP BY 1 ORDER BY 1").map(({ destination }) => destination),
    window: {
      events: number("SELECT count(*) FROM waybill_windows w JOIN json_each(w.seqs)"),
      suspects: number("SELECT count(*) FROM waybill_suspects WHERE seq IN (SELECT seq FROM outbox WHERE status IN ('PENDING', 'FAILED'))"),
    },
    dead: number("SELECT count(*) FROM outbox WHERE status = 'DEAD'"),
    waits: number("SELECT count(*) FROM outbox WHERE status IN ('PENDING', 'FAILED', 'BLOCKED')") > 0,
  };
}

/** Status as its readers get it, in the same shape. */
export function statusSaid(json: string): object {
  const status = JSON.parse(json) as Status;
  return {
    states: status.states,
    relays: status.relays.map(({ relay, live, expiresAt, lanes, window }) => ({ relay, live, expiresAt, lanes, window })),
    lanes: status.lanes,
    holds: { aggregates: status.holds.aggregates, blocked: status.holds.blocked },
    breakers: status.breakers.map(({ destination }) => destination),
    window: status.window,
    dead: status.dead.reduce((sum, { events }) => sum + events, 0),
    waits: status.oldestUnpublishedMs !== null,
  };
}

/** Every column of every row that a settle may change. */
export function everything(sql: Sql): Readonly<Record<string, readonly SqlRow[]>> {
  return {
    outbox: sql("SELECT * FROM outbox ORDER BY seq"),
    holds: sql("SELECT * FROM waybill_holds ORDER BY aggregate_type, aggregate_id"),
    suspects: sql("SELECT * FROM waybill_suspects ORDER BY seq"),
    destinations: sql("SELECT * FROM waybill_destinations ORDER BY destination, lane"),
    log: sql('SELECT * FROM log ORDER BY "offset"'),
  };
}
