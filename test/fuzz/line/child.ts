import { setTimeout as sleep } from "node:timers/promises";
import { embedded } from "../../../src/brokers/embedded/index.ts";
import { kafka } from "../../../src/brokers/kafka/index.ts";
import { nats } from "../../../src/brokers/nats/index.ts";
import { rabbitmq } from "../../../src/brokers/rabbitmq/index.ts";
import { redis } from "../../../src/brokers/redis/index.ts";
import { asError, isWaybillError } from "../../../src/core/errors.ts";
import { sharedLineOf } from "../../../src/core/log.ts";
import type { PathEvent } from "../../../src/core/path-events.ts";
import { createRelay, type RelayOptions } from "../../../src/relay/create-relay.ts";
import { mysql } from "../../../src/stores/mysql/index.ts";
import { postgres } from "../../../src/stores/postgres/index.ts";
import { sqlite } from "../../../src/stores/sqlite/index.ts";
import { createSubscriber, type SubscriberOptions } from "../../../src/subscriber/subscriber.ts";
import type { Operator } from "../../../src/contracts/operator.ts";
import type { Schema } from "../../../src/contracts/store.ts";
import type { Opened } from "../publishers.ts";
import type { Config, Told } from "./told.ts";

/** The path in a process of its own: what ends it, or makes it grow, is seen from outside. */
const config = JSON.parse(process.argv[2]!) as Config;
const tell = (told: Told): void => void process.send?.(told);

process.on("uncaughtException", (error) => tell({ type: "uncaught", error: String(error?.stack ?? error) }));
process.on("unhandledRejection", (error) => tell({ type: "uncaught", error: String((error as Error | null)?.stack ?? error) }));
process.on("warning", (warning) => {
  if (warning.name === "MaxListenersExceededWarning") tell({ type: "uncaught", error: String(warning.stack) });
});
process.on("disconnect", () => process.exit(1)); // the fuzz is gone

type Store = RelayOptions["store"] &
  SubscriberOptions<unknown>["inbox"] & { readonly operator: Operator; readonly schema: Schema } & AsyncDisposable;
type Tx = { prepare(sql: string): { run(...values: string[]): void } } & {
  query(query: object | string, values?: unknown[]): Promise<unknown>;
};

const timeoutMs = 1_500;
const { name, url, file } = config;
const broker = {
  kafka: () => kafka({ url, partitions: 2, sessionMs: 6_000, timeoutMs }),
  rabbitmq: () => rabbitmq({ url, timeoutMs }),
  nats: () => nats({ url, connectTimeoutMs: timeoutMs }),
  redis: () => redis({ url, timeoutMs }),
  postgres: () => embedded({ path: file }),
  mariadb: () => embedded({ path: file }),
}[name]() as unknown as Opened & AsyncDisposable;
const settings = { url, connections: 5, connectTimeoutMs: timeoutMs, statementTimeoutMs: 2_000 };
const store = (name === "postgres"
  ? postgres(settings)
  : name === "mariadb"
    ? mysql(settings)
    : sqlite({ path: config.store })) as unknown as Store;
const insert: Readonly<Record<string, (tx: Tx, values: string[]) => unknown>> = {
  postgres: (tx, values) => tx.query("INSERT INTO effects (event_id, payload) VALUES ($1, $2)", values),
  mariadb: (tx, values) => tx.query("INSERT INTO effects (event_id, payload) VALUES (?, ?)", values),
};
const effect =
  insert[name] ?? ((tx: Tx, values: string[]) => tx.prepare("INSERT INTO effects (event_id, payload) VALUES (?, ?)").run(...values));

/** Everything that users may read. `ours`: whether it came as an error of Waybill's own; null where that cannot be seen. */
function observe(event: PathEvent): void {
  // The handler's own client fails in its own words.
  const quoting = event.type === "subscriber.failed" || event.type === "subscriber.died";
  const line = sharedLineOf(quoting ? { ...event, error: "" } : event);
  if (line !== null) tell({ type: "trouble", where: "log", error: line.text, ours: null });
  if (event.type === "relay.trouble") tell({ type: "trouble", where: event.step, error: event.error, ours: event.code !== null });
  else if (event.type === "subscriber.trouble") tell({ type: "trouble", where: event.step, error: event.error, ours: null });
  else if (event.type === "destination.opened") tell({ type: "trouble", where: "destination", error: event.error, ours: null });
  else if (event.type === "relay.failed" || event.type === "relay.died")
    tell({ type: "trouble", where: event.type, error: event.error, ours: null });
  else if (event.type === "subscriber.failed") tell({ type: "failed", error: event.error });
}

const delaysMs = Array.from({ length: 60 }, () => 200);
const create = () => ({
  relay: createRelay({
    ...{ store, sink: broker, observe, pollIntervalMs: 30, leaseMs: 4_000, publishTimeoutMs: 2_500, batch: 20 },
    ...{ retry: { delaysMs }, probeMs: { first: 100, last: 500 }, topics: [config.topic], route: config.topic },
  }),
  subscriber: createSubscriber<unknown, Tx>({
    ...{ consumer: "line", source: broker, inbox: store, topics: [config.topic], observe, seatMs: 4_000, retry: { delaysMs } },
    tx: (tx) => tx as Tx,
    handlers: { "*": async (event, tx) => void (await effect(tx, [event.id, JSON.stringify(event.payload)])) },
  }),
});

let ending = false;
const patience = (): AbortSignal => AbortSignal.timeout(8_000);

/** Each call ends in time, whatever the server answers. */
async function within<T>(what: string, ms: number, work: Promise<T>): Promise<T | undefined> {
  let late: NodeJS.Timeout | undefined;
  const deadline = new Promise<never>(
    (_, reject) => (late = setTimeout(() => reject(new Error(`${what} does not end within ${ms} ms`)), ms)),
  );
  try {
    return await Promise.race([work, deadline]);
  } catch (error) {
    if (String(error).includes("does not end within")) tell({ type: "late", what });
    tell({ type: "trouble", where: what, error: asError(error).message, ours: isWaybillError(error) });
    return undefined;
  } finally {
    clearTimeout(late);
  }
}

const asks: readonly (readonly [string, () => Promise<unknown> | undefined])[] =
  name === "postgres" || name === "mariadb"
    ? [
        ["status", () => store.operator.status()],
        ["events list", () => store.operator.list({ limit: 20 })],
        ["check", () => store.schema.check()],
        ["dead redrive", () => store.operator.redrive({}, { who: "fuzz", dryRun: true })],
      ]
    : [
        ["lag", () => broker.lag?.(config.topic, patience(), "line")],
        ["probe", () => broker.probe?.(config.topic, patience())],
      ];

async function ask(): Promise<void> {
  for (let n = 0; !ending; n++) {
    const [what, call] = asks[n % asks.length]!;
    await within(what, 25_000, (async () => call())());
    await sleep(60);
  }
}

let most = 0;
const measure = setInterval(() => {
  const { rss } = process.memoryUsage();
  if (rss > most) tell({ type: "rss", bytes: (most = rss) });
}, 50);

const started: { drain(): Promise<void>; stop(): Promise<void> }[] = [];
/** A service that cannot begin is begun anew, as a supervisor does. */
async function run(kind: "relay" | "subscriber"): Promise<void> {
  while (!ending) {
    const service = create()[kind];
    if (
      (await within(
        `${kind} start`,
        25_000,
        service.start().then(() => true),
      )) === true
    ) {
      started.push(service);
      tell({ type: "ready", what: kind });
      const over = await service.stopped.then(
        () => null,
        (error: unknown) => asError(error),
      );
      if (!ending) tell({ type: "trouble", where: `${kind} ended`, error: over?.message ?? "it ended", ours: isWaybillError(over) });
    }
    await sleep(100);
  }
}

const running = [run("relay"), run("subscriber"), ask()];
tell({ type: "ready", what: "process" });
// Awaited here: what runs this file imports nothing more once it is through.
await new Promise<void>((resolve) => process.on("message", (word) => word === "end" && resolve()));
await end();

async function end(): Promise<void> {
  ending = true;
  await within("drain", 20_000, Promise.all(started.map((service) => service.drain())));
  await within("the end", 15_000, Promise.all(running));
  await within(
    "closing",
    15_000,
    (async () => {
      await broker[Symbol.asyncDispose]();
      await store[Symbol.asyncDispose]();
    })(),
  );
  clearInterval(measure);
  tell({ type: "ended" });
  setTimeout(() => process.exit(0), 20);
}
