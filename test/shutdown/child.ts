import { writeSync } from "node:fs";
import { once } from "node:events";
import { sampleEvent } from "../../src/conformance/corpus.ts";
import { createOutbox } from "../../src/outbox/outbox.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { brokers, databases, type BrokerName, type Database, type DatabaseName } from "./places.ts";

/** A service that never calls process.exit: it ends when nothing keeps it alive. */
export interface Request {
  readonly database: { readonly name: DatabaseName; readonly place: string };
  readonly broker: { readonly name: BrokerName; readonly place: string };
  readonly topic: string;
  /**
   * `signal` drains at SIGTERM; `stop` stops in its place. `again` drains, adds another event and handles that. `using` leaves the ends to
   * `await using`. `alone` awaits one thing after the other while nothing else is under way.
   */
  readonly act: "signal" | "stop" | "again" | "using" | "alone";
}

const { database, broker: at, topic, act } = JSON.parse(process.argv[2]!) as Request;
const tell = (word: string): void => void writeSync(1, `${word}\n`);
const consumer = "shipping";

function services({ store }: Database, broker: ReturnType<(typeof brokers)[BrokerName]>, handled: () => void) {
  const relay = createRelay({ store, sink: broker, route: () => topic, observe: false });
  const subscriber = createSubscriber({
    observe: false,
    ...{ consumer, source: broker, inbox: store, topics: [topic] },
    handlers: { OrderPlaced: () => handled() },
  });
  return { relay, subscriber };
}

async function add({ store, db }: Database, aggregateId: string): Promise<void> {
  await createOutbox({ store }).transaction(db, (_, events) => {
    events.add({ aggregateType: "Order", aggregateId, type: "OrderPlaced", payload: {} });
  });
}

/** Adds an event while both run, and waits until it was handled. */
async function handleOne(opened: Database, broker: ReturnType<(typeof brokers)[BrokerName]>, id: string) {
  let handled = (): void => undefined;
  const done = new Promise<void>((resolve) => (handled = resolve));
  const { relay, subscriber } = services(opened, broker, handled);
  await Promise.all([relay.start(), subscriber.start()]);
  await add(opened, id);
  await done;
  return { relay, subscriber };
}

async function main(): Promise<void> {
  if (act === "using") return using();
  const opened = await databases[database.name](database.place);
  const broker = brokers[at.name](at.place);
  await opened.store.schema.migrate();
  await broker.provision([topic], [consumer]);
  if (act === "alone") await alone(opened, broker);
  else {
    const signalled = once(process, "SIGTERM");
    const { relay, subscriber } = await handleOne(opened, broker, "o-1");
    tell("handled");
    await signalled;
    await Promise.all(act === "stop" ? [relay.stop(), subscriber.stop()] : [relay.drain(), subscriber.drain()]);
  }
  if (act === "again") {
    const { relay, subscriber } = await handleOne(opened, broker, "o-2");
    tell("handled again");
    await relay.drain();
    await add(opened, "o-3"); // beside the subscriber that goes on
    await subscriber.drain();
    tell(`waiting ${(await opened.store.operator.status()).states.PENDING}`);
  }
  if (act !== "alone") await opened.close();
  const since = performance.now();
  process.on("exit", () => tell(`kept alive for ${Math.round(performance.now() - since)} ms`));
}

/** Each await is the only thing that keeps the process, on connections that have been idle before. */
async function alone(opened: Database, broker: ReturnType<(typeof brokers)[BrokerName]>): Promise<void> {
  const { signal } = new AbortController();
  for (const nth of [1, 2]) await add(opened, `o-${nth}`);
  await opened.close(); // the service's own connection would keep the process too
  for (let nth = 0; nth < 3; nth++) {
    await opened.store.operator.status();
    await broker.probe(topic, signal);
    await broker.oldest?.(topic, signal, consumer);
    await broker.lag?.(topic, signal, consumer);
  }
  const { published } = await services(opened, broker, () => undefined).relay.runOnce();
  tell(`published ${published}`);
  await broker.probe(topic, signal);
  // With a sink alone there is no relay whose timers would keep the process.
  for (let nth = 0; nth < 3; nth++) {
    const [result] = await broker.publish([{ topic, source: "/test", envelope: sampleEvent() }], signal);
    tell(`${result!.status} ${nth}`);
  }
}

async function using(): Promise<void> {
  const opened = await databases[database.name](database.place);
  {
    await using store = opened.store;
    await using broker = brokers[at.name](at.place);
    await store.schema.migrate();
    await broker.provision([topic], [consumer]);
    const running = await handleOne(opened, broker, "o-1");
    await using relay = running.relay;
    await using subscriber = running.subscriber;
    tell("handled");
    void [relay, subscriber];
  }
  tell("disposed");
  await opened.close();
}

await main();
tell("the end");
