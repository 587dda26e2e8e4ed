import type { Ask } from "../../../src/contracts/adapter.ts";
import type { Draft } from "../../../src/core/event.ts";
import type { Ground } from "../../../src/proof/run/ground.ts";
import { write } from "../../../src/proof/run/writer.ts";
import type { Stage } from "./row.ts";

/** Events by plain SQL, with nothing of this code between the statement and the table. */
const insertPlainly =
  (ask: Ask, { outbox }: Ground["tables"]) =>
  async (drafts: readonly Draft[]): Promise<readonly []> => {
    for (const { id = "", aggregateType, aggregateId, type, payload, headers = {} } of drafts)
      await ask(`INSERT INTO ${outbox} (id, aggregate_type, aggregate_id, event_type, payload, headers) VALUES (?, ?, ?, ?, ?, ?)`, [
        ...[id, aggregateType, aggregateId, type],
        ...[JSON.stringify(payload), JSON.stringify(headers)],
      ]);
    return [];
  };

/** The service's writer on a ground whose events go in by plain SQL. */
function plainWriter({ ground, recorder, clock, dutyOf }: Stage): { readonly written: () => number; end(): Promise<void> } {
  const duty = dutyOf("writer", 9);
  if (duty.role !== "writer") throw new Error("a writer was asked for");
  const plain: Ground = {
    ...ground,
    transaction: (work) =>
      ground.transaction(async ({ ask }) => {
        const last: Draft[] = [];
        const add = insertPlainly(ask, ground.tables);
        await work({ ask, add, events: { add: (given) => void last.push(...[given].flat()) } });
        await add(last);
      }),
  };
  // Plain SQL writes text alone: bytes and the largest payloads are the other writers'.
  const load = { ...duty.load, hard: 0, large: 0 };
  const task = { ...duty, load, name: "plain-writer", history: "", log: "" };
  const ending = new AbortController();
  let written = 0;
  const did = (count: number): void => void (written += count);
  const writing = write({ task, ground: plain, recorder, clock, did, say: () => undefined }, ending.signal);
  return {
    written: () => written,
    async end() {
      ending.abort();
      await writing;
    },
  };
}

/** As with every deployment: the tables are those of this code, and migrate() has nothing to do. */
export async function migrateUnderLoad(stage: Stage): Promise<void> {
  const { schema } = stage.ground.store;
  const writer = plainWriter(stage);
  let often = 0;
  try {
    for (; stage.on(); await stage.pause(200)) {
      const applied = await schema.migrate();
      if (applied.length > 0) throw new Error(`tables of this code were migrated: ${JSON.stringify(applied)}`);
      await schema.check();
      often++;
      stage.once();
    }
  } finally {
    await writer.end();
  }
  stage.note(`${writer.written()} events were written by plain SQL while migrate() ran ${often} times`);
}
