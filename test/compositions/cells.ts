import { afterAll, beforeAll, expect, test } from "vitest";
import { describeWith, judge } from "../servers/available.ts";
import type { Server } from "../servers/server.ts";
import { cellsOf } from "./deal.ts";
import { deeds } from "./deeds.ts";
import { features, lacks, limitsOf, tell, type Cell } from "./features.ts";
import { consumer, play, topicsOf } from "./play.ts";
import { stores, type Way } from "./stores.ts";
import { createBrokers, lacking } from "./topics.ts";

interface Held {
  readonly cell: Cell;
  readonly ms: number;
}

/**
 * One test for each cell of the store, and at the end a table of those that held. A cell that cannot run is printed with its reason:
 * levels that the store lacks, and brokers that cannot be had here. `WAYBILL_CELLS=5,17` plays some cells only, by their numbers.
 */
export async function playCells(name: Cell["store"], how: "some" | "all"): Promise<void> {
  const { store, title, server, ways } = stores.find((each) => each.store === name)!;
  const cells = cellsOf(store, ways.map((way) => way.name), deeds.map((deed) => deed.name), how); // prettier-ignore
  const chosen = process.env["WAYBILL_CELLS"]?.split(",").map(Number);
  const absent = new Map<string, string>();
  for (const broker of features.broker) {
    const why = await lacking(broker);
    if (why !== null) absent.set(broker, why);
  }
  await describeWith(server === null ? [] : server.name, `compositions on ${title}`, () => {
    let running: Server | null = null;
    const brokers = createBrokers();
    const held: Held[] = [];
    beforeAll(async () => void (running = (await server?.start()) ?? null));
    afterAll(async () => {
      await brokers[Symbol.asyncDispose]();
      await running?.[Symbol.asyncDispose]();
      const left = cells.filter((cell) => absent.has(cell.broker)).length;
      console.log(report(`${title}${running === null ? "" : ` ${running.version}`}`, cells.length, left, held));
      for (const why of lacks(store)) console.log(`  not on ${title}: ${why}`);
      for (const why of limitsOf(cells)) console.log(`  a known limit on ${title}: ${why}`);
      for (const [broker, why] of absent) console.log(`  not with ${broker}: ${why}`);
    });
    for (const [at, cell] of cells.entries()) {
      if (chosen !== undefined && !chosen.includes(at)) continue;
      const told = `${at}: ${tell(cell)}`;
      const why = absent.get(cell.broker);
      if (why === undefined) {
        test(told, { timeout: 180_000 }, async () => {
          const started = performance.now();
          const wrong = await playOne(
            cell,
            ways.find((way) => way.name === cell.way)!,
            (of) => running!.url(of),
            brokers,
            `${how}-${at}`,
          );
          expect(wrong).toEqual([]);
          held.push({ cell, ms: performance.now() - started });
        });
      } else if (judge([{ name: cell.broker as "kafka", why }], process.env["WAYBILL_REQUIRE"] ?? "").verdict === "fail")
        test(told, () => expect.fail(why));
      else test.skip(`${told} (${why})`);
    }
  });
}

async function playOne(
  cell: Cell,
  way: Way,
  url: (database?: string) => string,
  brokers: ReturnType<typeof createBrokers>,
  suffix: string,
): Promise<readonly string[]> {
  const name = `composed-${process.pid}-${cell.store}-${suffix}`;
  await using topics = await brokers.topics(cell.broker, Object.values(topicsOf(name)), consumer);
  const ground = await way.prepare(url, {
    ...(cell.published.startsWith("deleted") && { onPublish: "delete" as const }),
    ...(cell.published.endsWith("partitions") && { partitions: "day" as const }),
    ...(cell.hints === "listens" && { listen: true as const }),
  });
  try {
    const deed = deeds.find((each) => each.name === cell.deed)!;
    return await play(cell, deed, ground, topics, name);
  } finally {
    await ground.close();
  }
}

/** How many cells held, and for how long, by way and mode. */
function report(title: string, all: number, left: number, held: readonly Held[]): string {
  const seconds = (of: readonly Held[]): string => `${(of.reduce((sum, { ms }) => sum + ms, 0) / 1_000).toFixed(0)} s`;
  const ways = [...new Set(held.map(({ cell }) => cell.way))].sort();
  const lines = ways.map((way) => {
    const own = held.filter(({ cell }) => cell.way === way);
    const counts = features.mode.map((mode) => `${mode} ${own.filter(({ cell }) => cell.mode === mode).length}`);
    return `  ${way}: ${counts.join(", ")} (${seconds(own)})`;
  });
  const skipped = left === 0 ? "" : `, ${left} not run`;
  return [`compositions on ${title}: ${held.length} of ${all} cells held${skipped} (${seconds(held)})`, ...lines].join("\n");
}
