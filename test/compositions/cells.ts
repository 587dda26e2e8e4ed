import { afterAll, expect, test } from "vitest";
import { cellsOf } from "./deal.ts";
import { deeds } from "./deeds.ts";
import { features, tell, type Cell } from "./features.ts";
import type { Ground, Keeping } from "./ground.ts";
import { consumer, play, topicsOf } from "./play.ts";
import { createBrokers, lacking } from "./topics.ts";

export interface Way {
  readonly name: string;
  prepare(keeping: Keeping): Promise<Ground>;
}

/** One test for each cell of the store. Brokers that cannot be had are skipped aloud. */
export async function playCells(store: Cell["store"], ways: readonly Way[], how: "some" | "all"): Promise<void> {
  const cells = cellsOf(store, ways.map(({ name }) => name), deeds.map(({ name }) => name), how); // prettier-ignore
  const lacks = new Map<string, string>();
  for (const broker of features.broker) {
    const why = await lacking(broker);
    if (why !== null) lacks.set(broker, why);
  }
  for (const [broker, why] of lacks) console.warn(`skipped: compositions with ${broker}: ${why}`);
  const brokers = createBrokers();
  const played: Cell[] = [];
  afterAll(async () => {
    await brokers[Symbol.asyncDispose]();
    console.log(report(store, cells.length, played));
  });
  const run = `composed-${process.pid}-${store}`;
  for (const [at, cell] of cells.entries()) {
    const why = lacks.get(cell.broker);
    const title = `${at}: ${tell(cell)}`;
    if (why !== undefined) {
      test.skip(`${title} (${why})`);
      continue;
    }
    test(title, { timeout: 180_000 }, async () => {
      const name = `${run}-${at}`;
      const deed = deeds.find((each) => each.name === cell.deed)!;
      const way = ways.find((each) => each.name === cell.way)!;
      await using topics = await brokers.topics(cell.broker, Object.values(topicsOf(name)), consumer);
      const ground = await way.prepare({
        ...(cell.published.startsWith("deleted") && { onPublish: "delete" as const }),
        ...(cell.published.endsWith("partitions") && { partitions: "day" as const }),
        ...(cell.hints === "listens" && { listen: true as const }),
      });
      try {
        expect(await play(cell, deed, ground, topics, name)).toEqual([]);
        played.push(cell);
      } finally {
        await ground.close();
      }
    });
  }
}

/** How many cells held, by way and mode. */
function report(store: string, all: number, played: readonly Cell[]): string {
  const ways = [...new Set(played.map(({ way }) => way))];
  const lines = ways.map((way) => {
    const counts = features.mode.map((mode) => `${mode} ${played.filter((cell) => cell.way === way && cell.mode === mode).length}`);
    return `  ${way}: ${counts.join(", ")}`;
  });
  return [`compositions on ${store}: ${played.length} of ${all} cells held`, ...lines].join("\n");
}
