import { setTimeout as sleep } from "node:timers/promises";
import type { PathEvent } from "../../src/core/path-events.ts";
import type { Service } from "../../src/core/service.ts";
import { createWake } from "../../src/core/wake.ts";
import { createRelay, type RelayOptions } from "../../src/relay/create-relay.ts";
import type { SubscriberEvent } from "../../src/subscriber/event.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import type { Deed, Hands } from "./deeds.ts";
import { addAll, effectOf, isBad, planOf, type Planned } from "./events.ts";
import type { Cell } from "./features.ts";
import type { Ground } from "./ground.ts";
import { judge, type Outcome } from "./judge.ts";
import type { Topics } from "./topics.ts";

export const consumer = "stock";
const patienceMs = 45_000;
const hangsMs = 1_500;

/** The topics of a cell, by a name of its own. */
export const topicsOf = (name: string): { readonly orders: string; readonly parcels: string } => ({
  orders: `${name}.orders`,
  parcels: `${name}.parcels`,
});

/** Plays a cell from the service's transactions to the effects, and answers what it found wrong, in words. */
export async function play(cell: Cell, deed: Deed, ground: Ground, topics: Topics, name: string): Promise<readonly string[]> {
  const uncaught: unknown[] = [];
  const caught = (error: unknown): void => void uncaught.push(error);
  process.on("uncaughtException", caught).on("unhandledRejection", caught);
  try {
    const wrong = [...(await playOn(cell, deed, ground, topics, name))];
    if (ground.connections !== undefined && !(await comesTrue(async () => (await ground.connections!()) === 0)))
      wrong.push(`${await ground.connections()} connections are left at the end`);
    return [...wrong, ...uncaught.map((error) => `uncaught: ${(error as Error).stack ?? String(error)}`)];
  } finally {
    process.off("uncaughtException", caught).off("unhandledRejection", caught);
  }
}

async function comesTrue(holds: () => boolean | Promise<boolean>, withinMs = patienceMs): Promise<boolean> {
  for (const until = performance.now() + withinMs; performance.now() < until; await sleep(15)) if (await holds()) return true;
  return holds();
}

async function playOn(cell: Cell, deed: Deed, ground: Ground, topics: Topics, name: string): Promise<readonly string[]> {
  const { orders, parcels } = topicsOf(name);
  const events: PathEvent[] = [];
  const observe = (event: PathEvent): void => void events.push(event);
  const wrong: string[] = [];
  if (deed.name === "deadlocks") for (const row of ["a", "b"]) await ground.read(`INSERT INTO scratch (name) VALUES ('${row}')`);
  if (deed.shares === true) {
    await ground.read("CREATE TABLE scratch_rows (name varchar(9) PRIMARY KEY, sum integer NOT NULL)");
    await ground.read("INSERT INTO scratch_rows VALUES ('all', 0)");
  }
  let healed = false;
  const handle = handlerOf(deed, ground, () => healed);
  const company = new Set<string>();
  const handling =
    cell.mode === "batchHandlers"
      ? {
          batchHandlers: {
            "*": async (all: readonly SubscriberEvent[], tx: unknown) => {
              const given = all.map((event) => ({ aggregateId: event.aggregateId, n: (event.payload as { readonly n: number }).n }));
              if (given.some((each) => isBad(deed, each))) for (const each of given) company.add(effectOf(each));
              for (const event of all) await handle(event, tx);
            },
          },
        }
      : { handlers: { "*": handle } };
  const services: Service[] = [];
  for (let nth = 0; nth < (cell.subscribers === "two" ? 2 : 1); nth++)
    services.push(
      createSubscriber<unknown>({
        ...{ consumer, source: topics.open(), inbox: ground.store, topics: [orders, parcels], observe },
        batch: cell.mode === "one by one" ? 1 : 20,
        retry: { delaysMs: [5, 5] },
        handlerTimeoutMs: deed.name.startsWith("hangs") ? hangsMs : 30_000,
        ...handling,
      }),
    );
  for (let nth = 0; nth < (cell.relays === "one" ? 1 : 2); nth++) services.push(createRelay(relayOf(cell, ground, topics, name, observe)));
  try {
    for (const service of services) await service.start();
    const added = await addAll(ground, planOf(cell));
    wrong.push(...added.wrong);
    const look = (): Promise<Outcome> => lookAt(cell, ground, topics, { orders, parcels });
    const ended = endsIn(events);
    const going = [...added.ids].filter(([, { aggregateType, forbidden }]) => forbidden !== true && aggregateType !== "Stray");
    const after = [...added.ids].filter(([, { aggregateType, forbidden }]) => forbidden !== true && aggregateType === "Stray");
    const end = async (of: readonly (readonly [string, Planned])[], what: string): Promise<void> => {
      const open = (): string[] => of.filter(([id]) => !ended.has(id)).map(([, event]) => effectOf(event));
      if (!(await comesTrue(() => open().length === 0))) wrong.push(`${what} come to no end: ${open().join(", ")}`);
    };
    await end(going, "events");
    if (cell.refused === "blocks") {
      const dead = [...added.ids].find(([, { forbidden }]) => forbidden === true)![0];
      if (!(await comesTrue(async () => (await ground.store.operator.show(dead))?.state === "DEAD")))
        wrong.push("the refused event is not DEAD");
      if (after.some(([id]) => ended.has(id))) wrong.push("a follower of a dead event was delivered");
      await ground.store.operator.discard({ ids: [dead] }, { who: "ann", dryRun: false });
    }
    await end(after, "followers of a refused event");
    if (deed.adds === true) {
      const expected = going.length + after.length;
      const got = (): number => [...ended.keys()].filter((id) => !added.ids.has(id)).length;
      if (!(await comesTrue(() => got() >= expected))) wrong.push(`${got()} of ${expected} added events come to an end`);
    }
    if (!(await comesTrue(async () => (await look()).waiting === 0))) wrong.push("rows of the outbox come to no end");
    wrong.push(...judge({ cell, deed, added, outcome: await look(), events, company, isHealed: false }));
    if (cell.letters === "redriven") {
      healed = true;
      const letters = await ground.store.letters.list({ limit: 1_000 });
      const times = new Map(letters.map(({ id }) => [id, ended.get(id) ?? 0]));
      if (letters.length > 0) {
        await ground.store.letters.redrive({ ids: letters.map(({ id }) => id) }, { who: "ann", dryRun: false });
        if (!(await comesTrue(() => letters.every(({ id }) => ended.get(id)! > times.get(id)!))))
          wrong.push("redriven letters come to no end");
        wrong.push(...judge({ cell, deed, added, outcome: await look(), events, company, isHealed: true }));
      }
    }
    await Promise.all(services.map((service) => service.drain()));
    if (ground.listeners !== undefined && new Set(ground.listeners()).size > 1)
      wrong.push(`listeners stay: ${ground.listeners().join(", ")}`);
    if (ground.hints() === 0) wrong.push("no relay was woken");
  } finally {
    await Promise.all(services.map((service) => service.stop()));
    await ground.end();
  }
  return wrong;
}

/** How often each event came to an end, by its id; it grows with the list. */
function endsIn(events: readonly PathEvent[]): Map<string, number> {
  const ends = new Map<string, number>();
  let read = 0;
  const update = (): void => {
    for (; read < events.length; read++) {
      const event = events[read]!;
      if (event.type === "subscriber.handled" || event.type === "subscriber.died") ends.set(event.id, (ends.get(event.id) ?? 0) + 1);
    }
  };
  return new Proxy(ends, {
    get(target, key) {
      update();
      const value = Reflect.get(target, key) as unknown;
      return typeof value === "function" ? (value.bind(target) as unknown) : value;
    },
  });
}

function handlerOf(deed: Deed, ground: Ground, isHealed: () => boolean): (event: SubscriberEvent, tx: unknown) => Promise<void> {
  let here = 0;
  let open: (() => void)[] = [];
  const meet: Hands["meet"] = async (handlers) => {
    here += 1;
    if (here < handlers) await Promise.race([new Promise<void>((resolve) => open.push(resolve)), sleep(300)]);
    for (const each of open.splice(0)) each();
    open = [];
    here = 0;
  };
  return async (event, tx) => {
    const { n } = event.payload as { readonly n: number };
    const run = async (sql: string): Promise<unknown> => ground.run(tx, sql);
    await run(`INSERT INTO effects (name) VALUES ('${effectOf({ aggregateId: event.aggregateId, n })}')`);
    if (event.aggregateType === "Parcel" || isHealed() || !isBad(deed, { aggregateId: event.aggregateId, n })) return;
    const add = async (): Promise<void> => {
      const parcel = { aggregateType: "Parcel", aggregateId: `p-${event.aggregateId}`, type: "ParcelPacked", payload: { n } };
      await ground.outbox.add(tx, parcel);
    };
    await deed.does({ ground, tx, event, run, add, meet });
  };
}

function relayOf(cell: Cell, ground: Ground, topics: Topics, name: string, observe: (event: PathEvent) => void): RelayOptions {
  const { orders, parcels } = topicsOf(name);
  const coordination = { "two competing": "competing", "two with a leader": "leader" } as const;
  return {
    store: cell.hints === "polls" ? { ...ground.relayed, wake: createWake() } : ground.relayed,
    sink: topics.open(),
    topics: [orders, parcels],
    route: ({ aggregateType, type }) => (type === "Forbidden" ? `${name}.forbidden` : aggregateType === "Parcel" ? parcels : orders),
    pollIntervalMs: cell.hints === "polls" ? 50 : 1_000,
    coordination: cell.relays === "one" || cell.relays === "two partitioned" ? "partitioned" : coordination[cell.relays],
    skip: cell.refused === "skips" ? ["Stray"] : [],
    observe,
  };
}

async function lookAt(cell: Cell, ground: Ground, topics: Topics, { orders, parcels }: ReturnType<typeof topicsOf>): Promise<Outcome> {
  const states = await ground.read("SELECT id, status FROM outbox");
  const shared = await ground.read("SELECT sum FROM scratch_rows").catch(() => [["0"]]);
  return {
    states: new Map(states.map(([id, status]) => [id!, status!])),
    waiting: states.filter(([, status]) => status !== "PUBLISHED" && status !== "DEAD" && status !== "DISCARDED").length,
    effects: (await ground.read("SELECT name FROM effects ORDER BY pos")).map(([effect]) => effect!),
    letters: (await ground.store.letters.list({ limit: 1_000 })).map(({ id, errorCode, error }) => ({
      id,
      error: `${errorCode}: ${error}`,
    })),
    stored: [...(await topics.stored(orders)), ...(await topics.stored(parcels))],
    shared: Number(shared[0]![0]),
  };
}
