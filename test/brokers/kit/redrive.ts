import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { sampleEvent } from "../../../src/conformance/corpus.ts";
import type { Envelope } from "../../../src/core/event.ts";
import { postgres } from "../../../src/stores/postgres/index.ts";
import { fatal } from "../../../src/subscriber/fatal.ts";
import { createSubscriber, type Subscriber } from "../../../src/subscriber/subscriber.ts";
import { startPostgres, type Postgres } from "../../servers/postgres.ts";
import { pause } from "./changes.ts";
import { freshType, type Broker, type Subject } from "./subject.ts";

/** A broker that letters come from; the embedded one has no server. */
type Place = Pick<Subject, "open" | "provision"> & {
  start(): Promise<{ url(): string } & AsyncDisposable>;
};

interface Pace {
  readonly letters: number;
  /** How many are redriven at once, and how long to wait then. */
  readonly most: number;
  readonly everyMs: number;
}

const consumer = "shop";
const aggregates = 40;

/** Letters of two causes in PostgreSQL, one group of which is redriven; call it in a `describeWith` of PostgreSQL and the broker. */
export function redriveSuite(place: Place, { letters: count, most, everyMs }: Pace): void {
  let database: Postgres;
  let server: Awaited<ReturnType<Place["start"]>>;
  let pool: pg.Pool;
  beforeAll(async () => {
    [database, server] = await Promise.all([startPostgres({ version: 15 }), place.start()]);
    pool = new pg.Pool({ connectionString: database.url(), max: 4 });
    pool.on("error", () => undefined);
    await pool.query("CREATE TABLE effects (position bigserial, consumer text NOT NULL, id text NOT NULL)");
  });
  afterAll(async () => {
    await pool.end();
    await Promise.all([database[Symbol.asyncDispose](), server[Symbol.asyncDispose]()]);
  });

  test(`${count} letters of two causes are two groups; one is redriven: once each, in parked order, for its consumer only`, async () => {
    const { topic, aggregateType } = freshType();
    await place.provision(server.url(), [topic], [consumer, "billing"]);
    await using store = postgres({ url: database.url() });
    await store.schema.migrate();
    await using broker = place.open(server.url());
    const events = Array.from({ length: count }, (_, n) => sampleEvent({ aggregateType, aggregateId: `order-${n % aggregates}` }));
    const closed = new Set(events.filter((_, n) => n % 5 < 2).map(({ id }) => id));
    let mended = false;
    const subscriber = (of: string, source: Broker): Subscriber =>
      createSubscriber({
        ...{ consumer: of, source, inbox: store, topics: [topic], observe: false, retry: { delaysMs: [], jitter: 0 } },
        handlers: {
          async "*"({ id }, tx) {
            if (of === consumer && !mended) throw fatal(closed.has(id) ? `the carrier is closed for ${id}` : `no account for ${id}`);
            await tx.query("INSERT INTO effects (consumer, id) VALUES ($1, $2)", [of, id]);
          },
        },
      });
    const effects = async (of: string): Promise<readonly string[]> =>
      (await pool.query<{ id: string }>("SELECT id FROM effects WHERE consumer = $1 ORDER BY position", [of])).rows.map(({ id }) => id);
    const patient = { timeout: 240_000, interval: 250 };

    const sources = Array.from({ length: 3 }, () => place.open(server.url()));
    // Two processes of the consumer: whoever may apply letters applies them.
    const services = sources.map((source, n) => subscriber(n < 2 ? consumer : "billing", source));
    await using _ended = {
      async [Symbol.asyncDispose]() {
        await Promise.all(services.map((service) => service.stop()));
        await Promise.all(sources.map((source) => source[Symbol.asyncDispose]()));
      },
    };
    await Promise.all(services.map((service) => service.start()));
    for (let from = 0; from < count; from += 100) {
      const batch = events.slice(from, from + 100).map((envelope) => ({ topic, source: "/test", envelope }));
      const results = await broker.publish(batch, AbortSignal.timeout(30_000));
      expect(results.filter(({ status }) => status !== "stored")).toEqual([]);
    }
    const groups = async () =>
      (await store.letters.groups({ consumer, topic })).map(({ error, letters, redriven }) => ({ error, letters, redriven }));
    await expect.poll(async () => (await groups()).reduce((sum, { letters }) => sum + letters, 0), patient).toBe(count);
    const [larger, smaller, ...rest] = await groups();
    expect(rest).toEqual([]);
    expect([larger!.letters, smaller!.letters]).toEqual([count - closed.size, closed.size]);
    await expect.poll(async () => (await effects("billing")).length, patient).toBe(count);
    const parked = (await store.letters.list({ consumer, topic, limit: count })).map(({ id }) => id).reverse();

    mended = true;
    const by = { who: "ann", dryRun: false, most };
    for (let given = -1; given !== 0;) {
      given = (await store.letters.redrive({ consumer, topic, error: smaller!.error }, by)).letters;
      expect(given).toBeLessThanOrEqual(most);
      await pause(everyMs);
    }
    await expect.poll(async () => (await effects(consumer)).length, patient).toBeGreaterThanOrEqual(closed.size);
    await expect.poll(groups, patient).toEqual([{ ...larger, redriven: 0 }]);

    const applied = await effects(consumer);
    expect([...applied].sort()).toEqual([...closed].sort());
    const of = ordersOf(events);
    expect(of(applied), "each aggregate's in the order in which they were parked").toEqual(of(parked.filter((id) => closed.has(id))));
    expect((await effects("billing")).length, "the other consumer has each event once").toBe(count);
    expect(await store.letters.groups({ consumer: "billing" })).toEqual([]);
    // What a metrics page shows, beside the receiving itself. RabbitMQ's and Redis' older versions may tell nothing.
    for (const service of [services[0]!, services[2]!])
      await expect
        .poll(async () => (await service.look()).map(({ lag, ...of }) => ({ ...of, lag: lag ?? 0 })), patient)
        .toEqual([{ topic, lag: 0, deadTopic: null }]);
  }, 900_000);
}

/** Ids by aggregate, in their order. */
function ordersOf(events: readonly Envelope[]): (ids: readonly string[]) => Record<string, string[]> {
  const aggregateOf = new Map(events.map(({ id, aggregateId }) => [id, aggregateId]));
  return (ids) => {
    const found: Record<string, string[]> = {};
    for (const id of ids) (found[aggregateOf.get(id)!] ??= []).push(id);
    return found;
  };
}

export const shortPace: Pace = { letters: 300, most: 40, everyMs: 100 };
export const longPace: Pace = { letters: 5_000, most: 100, everyMs: 1_000 };
