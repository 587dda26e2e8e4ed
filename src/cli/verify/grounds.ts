import { outboxOn } from "../open.ts";
import { storeUrl } from "../url.ts";
import { createTables, fill, tablesBy, type Ground } from "./ground.ts";
import type { Place } from "./task.ts";

/** The ground of a run in the database that the URL names; its tables need not be there yet. */
export async function openGround({ store: text, run }: Pick<Place, "store" | "run">): Promise<Ground> {
  const url = storeUrl(text);
  const opened = url.adapter.openRun(url, run);
  const { store, dialect, ask, within } = opened;
  const outbox = outboxOn(opened);
  const tables = tablesBy((name) => opened.table(name));
  return {
    store,
    tables,
    ask,
    within,
    async prepare(aggregates, consumers) {
      await store.schema.migrate();
      for (const sql of createTables(tables, dialect)) await ask(sql);
      await fill(ask, tables, aggregates, consumers);
    },
    transaction: (work) =>
      outbox.transaction(null, (tx, events) => work({ ask: within(tx), add: (drafts) => outbox.add(tx, drafts), events })),
    remove: () => opened.remove(),
    [Symbol.asyncDispose]: () => opened[Symbol.asyncDispose](),
  };
}
