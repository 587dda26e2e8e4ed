import pg from "pg";
import { afterAll, beforeAll, expect, test } from "vitest";
import { systemClock } from "../../src/core/clock.ts";
import { createRelay } from "../../src/relay/create-relay.ts";
import { memoryBroker } from "../../src/brokers/memory/index.ts";
import { postgres } from "../../src/stores/postgres/index.ts";
import { createSubscriber } from "../../src/subscriber/subscriber.ts";
import { describeWith } from "../servers/available.ts";
import { startPostgres, type Postgres } from "../servers/postgres.ts";
import { scriptedSink } from "../support/scripted-sink.ts";

await describeWith("postgres", "a PostgreSQL server that is away when its programs start", () => {
  let server: Postgres;
  beforeAll(async () => void (server = await startPostgres({ version: 15 })));
  afterAll(() => server[Symbol.asyncDispose]());

  const until = async (met: () => boolean): Promise<void> => {
    for (const end = systemClock.monotonic() + 30_000; !met(); await systemClock.sleep(20))
      if (systemClock.monotonic() > end) throw new Error("not within 30 s");
  };
  const programs = (url: string, troubles: string[]) => {
    const store = postgres({ url });
    const sink = scriptedSink();
    const relay = createRelay({
      ...{ store, sink, housekeeping: false },
      observe: (event) => void (event.type === "relay.trouble" && troubles.push(`relay: ${event.error}`)),
    });
    const subscriber = createSubscriber({
      ...{ consumer: "c", topics: ["t"], source: memoryBroker(), inbox: store, handlers: { "*": () => undefined } },
      observe: (event) => void (event.type === "subscriber.trouble" && troubles.push(`subscriber: ${event.error}`)),
    });
    return { store, sink, relay, subscriber };
  };

  test("is waited for by the relay and by the subscriber, which say why, and both work once it is there", async () => {
    const setup = postgres({ url: server.url() });
    await setup.schema.migrate();
    await setup[Symbol.asyncDispose]();
    await server.stop("fast");
    const troubles: string[] = [];
    const { store, sink, relay, subscriber } = programs(server.url(), troubles);
    await Promise.all([relay.start(), subscriber.start()]);
    await until(() =>
      ["relay", "subscriber"].every((who) => troubles.some((text) => text.startsWith(`${who}: `) && /cannot be reached/.test(text))),
    );
    await server.start();
    const client = new pg.Client({ connectionString: server.url() });
    await client.connect();
    await client.query(
      "INSERT INTO outbox (aggregate_type, aggregate_id, event_type, payload) VALUES ('Order', 'o', 'Placed', '{\"n\":1}')",
    );
    await client.end();
    await until(() => sink.log.length === 1);
    expect([relay.isRunning(), subscriber.isRunning()]).toEqual([true, true]);
    await Promise.all([relay.drain(), subscriber.drain()]);
    await store[Symbol.asyncDispose]();
  });

  test.each([
    ["a database that does not exist", () => server.url("nowhere"), /refused the connection/],
    ["a host that does not exist", () => "postgres://u:secret@no-such-host.invalid/db", /cannot be reached/],
  ])("%s ends both at once, since no wait mends it", async (_, url, why) => {
    const { store, relay, subscriber } = programs(url(), []);
    for (const service of [relay, subscriber]) {
      const error: unknown = await service.start().then(
        () => null,
        (cause: unknown) => cause,
      );
      expect(error).toMatchObject({ code: "STORE_UNAVAILABLE", retryable: false, message: expect.stringMatching(why) as string });
      expect(String(error)).not.toContain("secret");
    }
    await store[Symbol.asyncDispose]();
  });
});
