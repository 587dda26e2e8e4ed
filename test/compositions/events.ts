import type { Draft } from "../../src/core/event.ts";
import type { Deed } from "./deeds.ts";
import type { Cell } from "./features.ts";
import type { Ground } from "./ground.ts";

/** An event of a cell's plan. */
export interface Planned {
  readonly aggregateType: "Order" | "Stray";
  readonly aggregateId: string;
  readonly n: number;
  /** Refused for good by the relay: its route is none of the topics. */
  readonly forbidden?: true;
  readonly delayed?: true;
  readonly key?: string;
}

export const aggregates = 6;
export const perAggregate = 4;
const delayMs = 400;

export const effectOf = ({ aggregateId, n }: Pick<Planned, "aggregateId" | "n">): string => `${aggregateId} ${n}`;

/** The events that the deed is done to. */
export const isBad = ({ bad }: Deed, { aggregateId, n }: Pick<Planned, "aggregateId" | "n">): boolean =>
  bad === "all" || (n === 2 && (aggregateId === "o-1" || (bad === "two" && aggregateId === "o-2")));

/** What the service adds, a list for each of its transactions. */
export function planOf({ refused, delayed, keys }: Pick<Cell, "refused" | "delayed" | "keys">): readonly (readonly Planned[])[] {
  const order = (aggregateId: string, n: number): Planned => ({ aggregateType: "Order", aggregateId, n });
  const rounds = Array.from({ length: perAggregate }, (_, round) =>
    Array.from({ length: aggregates }, (_, i) => order(`o-${i}`, round + 1)),
  );
  const stray = (n: number): Planned => ({ aggregateType: "Stray", aggregateId: "s-0", n });
  return [
    ...(refused === "none" ? [] : [[{ ...stray(1), forbidden: true as const }, stray(2)], [stray(3)]]),
    ...(delayed === "none" ? [] : [[{ ...order("d-0", 1), delayed: true as const }], [order("d-0", 2)]]),
    ...(keys === "none" ? [] : [[{ ...order("k-0", 1), key: "once" }]]),
    ...rounds,
  ];
}

const draftOf = ({ aggregateType, aggregateId, n, forbidden, delayed, key }: Planned): Draft => ({
  aggregateType,
  aggregateId,
  type: forbidden === true ? "Forbidden" : "OrderPlaced",
  payload: { n },
  ...(key !== undefined && { idempotencyKey: key }),
  ...(delayed === true && { availableAt: new Date(Date.now() + delayMs) }),
});

/** Adds the plan, and one transaction that is rolled back. Resolves to the events by their ids, and what went wrong. */
export async function addAll(
  ground: Ground,
  plan: readonly (readonly Planned[])[],
): Promise<{ readonly ids: ReadonlyMap<string, Planned>; readonly phantom: string; readonly wrong: readonly string[] }> {
  const ids = new Map<string, Planned>();
  const wrong: string[] = [];
  for (const events of plan) {
    await ground.transaction(async (tx, outbox) => {
      const added = await outbox.add(tx, events.map(draftOf));
      for (const [at, { id, duplicate }] of added.entries()) {
        ids.set(id, events[at]!);
        if (duplicate) wrong.push(`${effectOf(events[at]!)} is told to be a duplicate`);
      }
    });
    for (const event of events.filter(({ key }) => key !== undefined))
      await ground.transaction(async (tx, outbox) => {
        const { id, duplicate } = await outbox.add(tx, draftOf(event));
        if (!duplicate || !ids.has(id)) wrong.push(`the key ${event.key} added twice`);
      });
  }
  let phantom = "";
  const undone = new Error("undone");
  await ground
    .transaction(async (tx, outbox) => {
      phantom = (await outbox.add(tx, draftOf({ aggregateType: "Order", aggregateId: "o-undone", n: 1 }))).id;
      throw undone;
    })
    .catch((error: unknown) => {
      if (error !== undone && (error as Error).cause !== undone) throw error;
    });
  return { ids, phantom, wrong };
}
