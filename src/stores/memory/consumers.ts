import type { Consumers } from "../../contracts/consumers.ts";
import { consumersFrom, countedMarks } from "../kit/consumers.ts";
import { parkedVersion } from "../kit/letters.ts";
import type { Clock } from "../../core/clock.ts";
import type { SeatRow } from "./inbox.ts";
import type { Tables } from "./tables.ts";

/** The inbox's maps. A key is consumer and id, with a NUL between the two. */
interface Inboxes {
  readonly seats: ReadonlyMap<string, SeatRow>;
  readonly marks: ReadonlyMap<string, { readonly handlerVersion: number }>;
  readonly failures: ReadonlyMap<string, { readonly count: number; readonly failedAt: number }>;
}

export function createConsumers({ letters }: Pick<Tables, "letters">, { seats, marks, failures }: Inboxes, clock: Clock): Consumers {
  const of = (name: string): string => name.slice(0, name.indexOf("\0"));
  return {
    async look(named) {
      const kept = [...letters.values()].filter(({ row }) => named === undefined || row.consumer === named);
      const byTopic = grouped(kept, ({ row }) => JSON.stringify([row.consumer, row.topic]));
      const counts = grouped([...failures], ([name]) => of(name));
      return consumersFrom(
        named,
        [...seats.values()]
          .filter(({ consumer }) => named === undefined || consumer === named)
          .map(({ consumer, topic, owner, endsAt, seenAt }) => ({
            ...{ consumer, topic, running: owner !== "" && endsAt > clock.monotonic(), seenAt: new Date(seenAt) },
          })),
        [...byTopic.values()].map((of) => ({
          consumer: of[0]!.row.consumer,
          topic: of[0]!.row.topic,
          letters: of.length,
          redriven: of.filter(({ redrivenAt }) => redrivenAt !== null).length,
          oldest: new Date(Math.min(...of.map(({ parkedAt }) => parkedAt))),
        })),
        [...counts].map(([consumer, of]) => ({
          consumer,
          events: of.length,
          attempts: Math.max(...of.map(([, { count }]) => count)),
          failedAt: new Date(Math.max(...of.map(([, { failedAt }]) => failedAt))),
        })),
        named === undefined
          ? null
          : Math.min(
              countedMarks,
              [...marks].filter(([name, { handlerVersion }]) => of(name) === named && handlerVersion !== parkedVersion).length,
            ),
      );
    },
  };
}

function grouped<T>(items: readonly T[], keyOf: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of items) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}
