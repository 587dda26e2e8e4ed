import type { PathEvent } from "../../src/core/path-events.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { chanceOf } from "./chance.ts";
import type { Ground, Grounds } from "./grounds.ts";
import { rowsOf, smaller, tellRow, type Dialect, type Row } from "./rows.ts";
import type { Report } from "./target.ts";
import { boundMs, Failed, nothingUncaught, reasonOf, within } from "./watch.ts";

const hostilePerRound = 16;
const controlsPerRound = 6;

/** What a seed does to a store. */
interface StorePlan {
  readonly seed: number;
  readonly rows: readonly Row[];
  /** A relay claims the rows and is never heard of again; the next one takes its lanes over. */
  readonly death: boolean;
}

export function storePlanOf(seed: number, dialect: Dialect): StorePlan {
  return { seed, rows: rowsOf(seed, dialect, hostilePerRound), death: chanceOf(seed, "death").is(0.25) };
}

/** Hostile rows among good ones, with a relay at work: the good ones are published in time, and no hostile one stays PENDING. */
export async function storeRound(grounds: Grounds, plan: StorePlan): Promise<Report> {
  const ground = await grounds.create();
  try {
    return await nothingUncaught(() => playOn(ground, plan));
  } finally {
    await ground.close();
  }
}

async function playOn(ground: Ground, { seed, rows, death }: StorePlan): Promise<Report> {
  let controls = 0;
  const control = async (): Promise<void> => {
    const columns = {
      aggregate_type: "Control",
      aggregate_id: `c-${seed}-${++controls}`,
      event_type: "Controlled",
      payload: `{"n":${controls}}`,
    };
    await ground.insert({ session: [], columns: Object.fromEntries(Object.entries(columns).map(([name, text]) => [name, { text }])) });
  };
  let refused = 0;
  const write = async (): Promise<void> => {
    for (const [n, row] of rows.entries()) {
      if (n % Math.ceil(rows.length / controlsPerRound) === 0) await control();
      await ground.insert(row).catch(() => refused++);
    }
    await control();
  };
  if (death) {
    await write();
    await dieWithRows(ground);
  }
  await using store = ground.open();
  const troubles: string[] = [];
  const observe = (event: PathEvent): void => {
    if (event.type === "relay.trouble") troubles.push(`${event.step}: ${event.error}`);
  };
  const sink = memoryBroker();
  const relay = createRelay({
    store,
    sink,
    observe,
    pollIntervalMs: 20,
    leaseMs: 3_000,
    batch: 100,
    retry: { delaysMs: [20, 40] },
    housekeeping: false,
  });
  const told = (): string => (troubles.length === 0 ? "" : `; the relay says, ${troubles.length} times: ${troubles.at(-1)!.slice(0, 300)}`);
  await relay.start();
  try {
    if (!death) await write();
    await within(
      boundMs,
      () => `good events are not published${told()}`,
      async () => (await ground.published("Control")) === controls,
    );
    let hidden: readonly string[] = [];
    await within(
      boundMs,
      () => `rows stay PENDING: ${hidden.join(" ")}${told()}`,
      async () => (hidden = await ground.hidden()).length === 0,
    );
    await operate(store.operator);
  } finally {
    let ended = false;
    void relay.drain().then(() => (ended = true));
    await within(
      boundMs,
      () => `the relay does not end${told()}`,
      async () => ended,
    );
  }
  return { refused, taken: rows.length - refused };
}

/** A relay of which nothing is left but its lease and its window. */
async function dieWithRows(ground: Ground): Promise<void> {
  await using store = ground.open();
  await store.leases.renew("dead", 300);
  const lanes = await store.leases.take("dead", [...Array(64).keys()]);
  await store.outbox.claim({ relay: "dead", lanes }, { limit: 100, open: [], narrow: false }).catch((error: unknown) => {
    throw new Failed(`a claim fails: ${reasonOf(error)}`);
  });
}

/** What an operator sees and does must not fail for one row. */
async function operate(operator: Awaited<ReturnType<Ground["open"]>>["operator"]): Promise<void> {
  const by = { who: "fuzz", dryRun: false };
  const acts: readonly (readonly [string, () => Promise<unknown>])[] = [
    ["status", () => operator.status()],
    ["events list", () => operator.list({ limit: 1_000 })],
    ["dead list", () => operator.list({ state: "DEAD", limit: 1_000 })],
    ["redrive (dry run)", () => operator.redrive({}, { ...by, dryRun: true })],
    ["discard", () => operator.discard({}, by)],
  ];
  for (const [name, act] of acts)
    await act().catch((error: unknown) => {
      throw new Failed(`${name} fails: ${reasonOf(error)}`);
    });
}

/** One row alone that still fails, as small as a minute allows. */
export async function shrinkRows(grounds: Grounds, plan: StorePlan): Promise<string | null> {
  const deadline = performance.now() + 90_000;
  const fails = async (row: Row): Promise<boolean> =>
    performance.now() < deadline &&
    (await storeRound(grounds, { ...plan, rows: [row] }).then(
      () => false,
      () => true,
    ));
  for (const row of plan.rows) {
    if (!(await fails(row))) continue;
    let smallest = row;
    for (let shrunk = true; shrunk;) {
      shrunk = false;
      for (const less of smaller(smallest, "f"))
        if (await fails(less)) {
          [smallest, shrunk] = [less, true];
          break;
        }
    }
    return tellRow(smallest);
  }
  return null;
}
