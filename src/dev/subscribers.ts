import type { Sink } from "../contracts/sink.ts";
import type { Delivery, Source } from "../contracts/source.ts";
import { systemClock } from "../core/clock.ts";
import { asError } from "../core/errors.ts";
import { createConnection } from "../drivers/sqlite/connection.ts";
import type { SqliteDatabase } from "../drivers/sqlite/driver.ts";
import { sqlite } from "../stores/sqlite/index.ts";
import { createSubscriber } from "../subscriber/subscriber.ts";
import { running, type Reporter, type Running } from "../proof/crew/child.ts";
import type { Job } from "./jobs.ts";
import { retryDelaysMs, seatMs, shopFiles, topic, type OrderPayload, type SubscriberName } from "./shop.ts";
import { effects } from "./tables.ts";

type SubscriberJob = Job & { role: "subscriber" };

export function runSubscriber(job: SubscriberJob, report: Reporter, broker: Sink & Source): Promise<Running> {
  return job.naive ? withoutInbox(job, report, broker) : withInbox(job, report, broker);
}

/** The mark in the inbox and the effect are one transaction: a second delivery changes nothing. */
async function withInbox({ name, folder }: SubscriberJob, report: Reporter, broker: Sink & Source): Promise<Running> {
  const path = shopFiles(folder)[name];
  const store = sqlite({ path });
  const notes = createConnection({ path, lockTimeoutMs: 10_000 });
  const noting = new Set<Promise<unknown>>();
  /** A second delivery leaves no trace in the tables otherwise, and the summary counts them. */
  const note = (id: string): void => {
    const written = notes.write((statements) => statements.run("INSERT INTO redeliveries (event_id) VALUES (?)", [id]));
    const task = written
      .catch((error: unknown) => report.did(`could not note a redelivery: ${asError(error).message}`, 0))
      .finally(() => noting.delete(task));
    noting.add(task);
  };
  const subscriber = createSubscriber({
    consumer: name,
    source: broker,
    inbox: store,
    topics: [topic],
    seatMs,
    retry: { delaysMs: retryDelaysMs, jitter: 0 },
    handlers: { "*": (event, tx: SqliteDatabase) => apply(name, tx, event) },
    observe(event) {
      if (event.type !== "subscriber.handled") return report.path(event);
      if (!event.first) note(event.id);
      report.did(event.first ? `applied ${event.eventType}` : `skipped a second ${event.eventType}`, event.first ? 1 : 0);
    },
  });
  const noted = {
    async [Symbol.asyncDispose]() {
      await Promise.all(noting);
      await notes.close();
    },
  };
  return await running(subscriber, [noted, broker, store]);
}

const againMs = 300;

/** Applies, then acknowledges: after a crash in between, the event is applied again. */
async function withoutInbox({ name, folder }: SubscriberJob, report: Reporter, broker: Sink & Source): Promise<Running> {
  const effectsDb = createConnection({ path: shopFiles(folder)[name], lockTimeoutMs: 10_000 });
  const ending = new AbortController();
  const take = async (delivery: Delivery): Promise<void> => {
    const { id, type, data } = delivery.envelope;
    await effectsDb.write((_, db) => apply(name, db, { id, type, payload: JSON.parse(Buffer.from(data).toString("utf8")) }));
    report.did(`applied ${type}`, 1);
    await delivery.ack();
  };
  const run = async (): Promise<void> => {
    while (!ending.signal.aborted) {
      try {
        for await (const delivery of broker.receive({ consumer: name, topics: [topic], prefetch: 16 }, ending.signal)) await take(delivery);
      } catch (error) {
        report.did(`waits: ${asError(error).message}`, 0);
        await systemClock.sleep(againMs, ending.signal);
      }
    }
  };
  const stopped = run();
  return {
    async drain() {
      ending.abort();
      await stopped;
      await broker[Symbol.asyncDispose]();
      await effectsDb.close();
    },
    stopped: stopped.then(() => new Promise<never>(() => undefined)),
  };
}

function apply(
  name: SubscriberName,
  db: SqliteDatabase,
  event: { readonly id: string; readonly type: string; readonly payload: unknown },
): void {
  const { order_id, version, total, items } = event.payload as OrderPayload;
  const units = items.reduce((sum, { quantity }) => sum + quantity, 0);
  effects[name](db, { id: event.id, type: event.type, order_id, version, total, units });
}
