import { expect, onTestFinished, test } from "vitest";
import type { Ground } from "./ground.ts";
import { subscribed } from "./subscribed.ts";

export const count = 40;
export const bad = 7;

/** A statement that a handler runs between two of its own, and whether it swallows the statement's failure. */
export interface Deed {
  readonly sql: string;
  readonly swallows?: true;
}

export const deeds: readonly Deed[] = [
  { sql: "COMMIT" },
  { sql: "COMMIT", swallows: true },
  { sql: "ROLLBACK" },
  { sql: "START TRANSACTION" },
  { sql: "BEGIN" },
  { sql: "CREATE TABLE IF NOT EXISTS made (name varchar(9))" },
];
export const onServers: readonly Deed[] = [
  ...deeds,
  { sql: "COMMIT AND CHAIN" },
  { sql: "ROLLBACK AND CHAIN" },
  { sql: "TRUNCATE TABLE scratch" },
  { sql: "TRUNCATE TABLE scratch", swallows: true },
];

interface Outcome {
  readonly letters: readonly { readonly id: string; readonly errorCode: string; readonly error: string }[];
  readonly effects: readonly string[];
}

/** What became of 40 events, one of which runs `deed`, and then of its letter when it is redriven. */
export async function applied(
  prepare: () => Promise<Ground>,
  batch: number,
  deed: Deed,
  asBatches = false,
): Promise<readonly [Outcome, Outcome]> {
  const ground = await prepare();
  onTestFinished(() => ground.close());
  const one = async ({ aggregateId: n }: { readonly aggregateId: string }, tx: unknown): Promise<void> => {
    await ground.run(tx, `INSERT INTO effects (name) VALUES ('${n}')`);
    if (n !== String(bad)) return;
    const done = Promise.resolve(ground.run(tx, deed.sql));
    await (deed.swallows === true ? done.catch(() => undefined) : done);
    await ground.run(tx, `INSERT INTO effects (name) VALUES ('${n} again')`);
  };
  const all = async (events: readonly { readonly aggregateId: string }[], tx: unknown): Promise<void> => {
    for (const event of events) await one(event, tx);
  };
  const handling = asBatches ? { batchHandlers: { OrderPlaced: all } } : { handlers: { OrderPlaced: one } };
  const { service, settled, events } = await subscribed(ground, { batch, ...handling }, count);
  onTestFinished(() => service.stop());
  await expect.poll(settled, { timeout: 30_000, interval: 20 }).toBe(count);
  const look = async (): Promise<Outcome> => ({
    letters: (await ground.store.letters.list({ limit: 100 })).map(({ id, errorCode, error }) => ({ id, errorCode, error })),
    effects: (await ground.read("SELECT name FROM effects")).map(([name]) => name!).sort(),
  });
  const first = await look();
  if (first.letters.length === 0) return [first, first];
  const handled = events.length;
  await ground.store.letters.redrive({ ids: first.letters.map(({ id }) => id) }, { who: "ann", dryRun: false });
  const again = (): number =>
    events.slice(handled).filter((event) => event.type === "subscriber.died" || event.type === "subscriber.handled").length;
  await expect.poll(again, { timeout: 30_000, interval: 20 }).toBe(first.letters.length);
  return [first, await look()];
}

/** Every event but the bad one has its effect once, and the bad one is a letter at most; it fares as it does by itself. */
export function harmsItselfOnly(prepare: () => Promise<Ground>, of: readonly Deed[], asBatches = false): void {
  const others = Array.from({ length: count }, (_, n) => String(n))
    .filter((n) => n !== String(bad))
    .sort();
  const check = (outcomes: readonly Outcome[]): void => {
    for (const { letters, effects } of outcomes) {
      expect(letters.map(({ id }) => id).filter((id) => id !== `e-${bad}`)).toEqual([]);
      expect(letters.length).toBeLessThanOrEqual(1);
      expect(effects.filter((name) => name.split(" ")[0] !== String(bad))).toEqual(others);
    }
  };
  for (const deed of of)
    test(`${deed.sql}${deed.swallows === true ? ", its failure swallowed" : ""}`, { timeout: 60_000 }, async () => {
      const alone = await applied(prepare, 1, deed);
      check(alone);
      const batched = await applied(prepare, 20, deed, asBatches);
      check(batched);
      // A refused statement that the handler does not mind leaves an event whole: then there is no letter in a batch.
      if (batched[0].letters.length > 0) expect(batched.map(({ letters }) => letters)).toEqual(alone.map(({ letters }) => letters));
      else if (alone[0].letters.length > 0) expect(deed.swallows).toBe(true);
    });
}

/**
 * In a library's transaction, what a handler does behind its own ROLLBACK is committed at once. Nobody can tell what became of the events of its
 * call, and none of them is applied again. Those of other calls in the same batch each have their effect once.
 */
export function repeatsNothing(prepare: () => Promise<Ground>): void {
  const isOther = (n: number): boolean => n % 4 === 0;
  const others = Array.from({ length: count }, (_, n) => n).filter(isOther).map(String).sort(); // prettier-ignore
  for (const sql of ["ROLLBACK", "COMMIT"])
    for (const batch of [1, 20])
      test(`${sql}, ${batch === 1 ? "one by one" : "in a call for many events"}`, { timeout: 60_000 }, async () => {
        const ground = await prepare();
        onTestFinished(() => ground.close());
        const one = async ({ aggregateId: n }: { readonly aggregateId: string }, tx: unknown): Promise<void> => {
          await ground.run(tx, `INSERT INTO effects (name) VALUES ('${n}')`);
          if (n !== String(bad)) return;
          await ground.run(tx, sql);
          await ground.run(tx, `INSERT INTO effects (name) VALUES ('${n} again')`);
        };
        const company = new Set<string>();
        const all = async (events: readonly { readonly id: string; readonly aggregateId: string }[], tx: unknown): Promise<void> => {
          if (events.some(({ aggregateId }) => aggregateId === String(bad))) for (const { id } of events) company.add(id);
          for (const event of events) await one(event, tx);
        };
        const handling = { batch, handlers: { OrderPaid: one }, batchHandlers: { OrderPlaced: all } };
        const typeOf = (n: number): string => (isOther(n) ? "OrderPaid" : "OrderPlaced");
        const { service, settled } = await subscribed(ground, handling, count, typeOf);
        onTestFinished(() => service.stop());
        await expect.poll(settled, { timeout: 30_000, interval: 20 }).toBe(count);
        const effects = (await ground.read("SELECT name FROM effects")).map(([name]) => name!);
        const letters = await ground.store.letters.list({ limit: 100 });
        expect(effects.filter((name, at) => effects.indexOf(name) !== at)).toEqual([]);
        expect(letters.filter(({ id }) => !company.has(id))).toEqual([]);
        expect(new Set(letters.map(({ errorCode }) => errorCode))).toEqual(new Set(["EFFECT_UNFINISHED"]));
        expect(effects.filter((name) => others.includes(name)).sort()).toEqual(others);
        const parked = new Set(letters.map(({ id }) => id.slice(2)));
        for (let n = 0; n < count; n++) if (!parked.has(String(n))) expect(effects).toContain(String(n));
      });
}
