import { expect, onTestFinished, test } from "vitest";
import type { Ground } from "./ground.ts";
import { subscribed } from "./subscribed.ts";

const count = 20;
/** The event whose handler leaves something behind, and a later one of the same batch. */
const [bad, later] = [7, 12];

interface Scene {
  readonly run: (sql: string) => Promise<unknown>;
  /** Resolves when the handler of the later event begins; before its effect, it waits for what comes `first`. */
  readonly begun: Promise<void>;
  /** Resolves when it has had its effect; then it waits for what is `loose`. */
  readonly later: Promise<void>;
}

export interface Rest {
  readonly name: string;
  /** What the handler of `bad` does last. What it leaves un-awaited is the value of `loose`. */
  bad?(scene: Scene): Promise<{ readonly loose: Promise<unknown>; readonly first?: Promise<unknown> } | void>;
  /** What the handler of the later event runs in the middle; it swallows a failure. */
  readonly later?: string;
}

const savepoint = "SAVEPOINT best_effort";
const undo = "ROLLBACK TO SAVEPOINT best_effort";

export const rests: readonly Rest[] = [
  {
    name: "a savepoint that it left open, and another handler's ROLLBACK TO it",
    bad: ({ run }) => run(savepoint).then(() => undefined),
    later: undo,
  },
  {
    name: "a ROLLBACK TO its savepoint, after its end",
    bad: async ({ run, later: reached }) => {
      await run(savepoint);
      return { loose: reached.then(() => run(undo)) };
    },
  },
  {
    name: "a savepoint and a ROLLBACK TO it, after its end",
    async bad({ run, begun, later: reached }) {
      const first = begun.then(() => run(savepoint));
      return { first, loose: Promise.all([first, reached]).then(() => run(undo)) };
    },
  },
  { name: "a ROLLBACK TO a name of Waybill's", later: "ROLLBACK TO SAVEPOINT waybill_work" },
];
export const ending: readonly Rest[] = [
  { name: "a COMMIT on its way", bad: async ({ run }) => ({ loose: run("COMMIT") }) },
  { name: "a ROLLBACK on its way", bad: async ({ run }) => ({ loose: run("ROLLBACK") }) },
  { name: "a COMMIT, after its end", bad: async ({ run, later: reached }) => ({ loose: reached.then(() => run("COMMIT")) }) },
];

function newSignal(): { readonly given: Promise<void>; give(): void } {
  let give = (): void => undefined;
  return { given: new Promise((resolve) => (give = resolve)), give: () => give() };
}

/** Every other event has its effect once, and no letter. */
export function leavesOthersAlone(prepare: () => Promise<Ground>, of: readonly Rest[]): void {
  for (const rest of of)
    test(rest.name, { timeout: 60_000 }, async () => {
      const ground = await prepare();
      onTestFinished(() => ground.close());
      const [begun, reached] = [newSignal(), newSignal()];
      let first: Promise<unknown> | undefined;
      let loose: Promise<unknown> | undefined;
      const handler = async ({ aggregateId: n }: { readonly aggregateId: string }, tx: unknown): Promise<void> => {
        const run = async (sql: string): Promise<unknown> => ground.run(tx, sql);
        if (n === String(later)) {
          begun.give();
          await first;
        }
        await run(`INSERT INTO effects (name) VALUES ('${n}')`);
        if (n === String(bad)) {
          const left = await rest.bad?.({ run, begun: begun.given, later: reached.given });
          [first, loose] = [left?.first, left?.loose].map((done) => done?.catch(() => undefined));
        }
        if (n === String(later)) {
          if (rest.later !== undefined) await run(rest.later).catch(() => undefined);
          reached.give();
          await loose;
        }
      };
      const { service, settled } = await subscribed(ground, { batch: count, handlers: { OrderPlaced: handler } }, count);
      onTestFinished(() => service.stop());
      await expect.poll(settled, { timeout: 30_000, interval: 20 }).toBe(count);
      const own = [String(bad), ...(rest.later === undefined ? [] : [String(later)])];
      const letters = (await ground.store.letters.list({ limit: 100 })).map(({ id }) => id.slice(2)).filter((n) => !own.includes(n));
      const effects = (await ground.read("SELECT name FROM effects")).map(([name]) => name!).filter((n) => !own.includes(n));
      const others = Array.from({ length: count }, (_, n) => String(n)).filter((n) => !own.includes(n));
      expect({ letters, effects: effects.sort() }).toEqual({ letters: [], effects: others.sort() });
    });
}

/** Handlers that tidy up after themselves share their transaction: none of them runs twice. */
export function keepsGoodBatches(prepare: () => Promise<Ground>, makesSavepoints: boolean): void {
  const statements = (n: string): readonly string[] => [
    `INSERT INTO effects (name) VALUES ('${n}')`,
    savepoint,
    `INSERT INTO effects (name) VALUES ('${n} undone')`,
    undo,
  ];
  for (const [name, of] of [
    ["handlers without savepoints run once each", (n: string) => statements(n).slice(0, 1)],
    ["handlers with savepoints of one name run once each", statements],
  ] as const)
    test.skipIf(!makesSavepoints && name.includes("with savepoints"))(name, { timeout: 60_000 }, async () => {
      const ground = await prepare();
      onTestFinished(() => ground.close());
      let calls = 0;
      const handler = async ({ aggregateId: n }: { readonly aggregateId: string }, tx: unknown): Promise<void> => {
        calls += 1;
        for (const sql of of(n)) await ground.run(tx, sql);
      };
      const { service, settled } = await subscribed(ground, { batch: count, handlers: { OrderPlaced: handler } }, count);
      onTestFinished(() => service.stop());
      await expect.poll(settled, { timeout: 30_000, interval: 20 }).toBe(count);
      const effects = (await ground.read("SELECT name FROM effects")).map(([effect]) => effect!);
      expect({ calls, effects: effects.sort() }).toEqual({
        calls: count,
        effects: Array.from({ length: count }, (_, n) => String(n)).sort(),
      });
    });
}
