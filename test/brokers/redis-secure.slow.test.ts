import { inspect } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { redis, type Redis } from "../../src/brokers/redis/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { describeWith } from "../servers/available.ts";
import { startRedis, type RedisServer } from "../servers/redis.ts";
import { makeCertificates, type Certificates } from "../support/certificates.ts";
import { resp } from "../support/resp.ts";
import { never, publish, topic } from "./redis.ts";

async function using<T>(url: string, work: (broker: Redis) => Promise<T>): Promise<T> {
  const broker = redis({ url, timeoutMs: 2_000 });
  try {
    return await work(broker);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

/** Stores and receives one event; rejects with the reason when it cannot. */
const roundTrip = (url: string): Promise<void> =>
  using(url, async (broker) => {
    await broker.connect(never);
    await broker.provision([topic], ["clerk"]);
    const event = sampleEvent();
    const [result] = await publish(broker, [event]);
    if (result!.status !== "stored") throw "error" in result! ? result.error : new Error(result!.status);
    for await (const delivery of broker.receive({ consumer: "clerk", topics: [topic], prefetch: 1 }, new AbortController().signal)) {
      await delivery.ack();
      if (delivery.envelope.id === event.id) return;
    }
  });

const refusal = async (url: string): Promise<Error> => {
  const why = await within(10_000, "the refusal", roundTrip(url)).then(
    () => null,
    (error: unknown) => error as Error,
  );
  if (why === null) throw new Error("it was let in");
  expect(why).toMatchObject({ code: "DESTINATION_UNAVAILABLE", retryable: true });
  return why;
};

await describeWith("redis", "redis over TLS", () => {
  let files: Certificates;
  let strangers: Certificates;
  let server: RedisServer;
  beforeAll(async () => {
    files = makeCertificates("DNS:localhost", "DNS:redis.example");
    strangers = makeCertificates("DNS:localhost");
    server = await startRedis({ secure: files });
    await using(`rediss://localhost:${server.port}?ca=${files.ca}`, (broker) => broker.provision([topic]));
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    files[Symbol.dispose]();
    strangers[Symbol.dispose]();
  });

  test("a server whose authority is given is trusted", async () => {
    await roundTrip(`rediss://localhost:${server.port}/0?ca=${files.ca}`);
  });

  test.each([
    ["whose authority nobody gave", () => `rediss://localhost:${server.port}`, /self.signed|certificate/i],
    ["of another authority", () => `rediss://localhost:${server.port}?ca=${strangers.ca}`, /self.signed|signature|certificate/i],
    ["of another name", () => `rediss://127.0.0.1:${server.port}?ca=${files.ca}`, /altnames|does not match/i],
  ] as const)("a server %s is refused", async (_, url, why) => {
    expect((await refusal(url())).message).toMatch(why);
  });

  test("speaking plainly to it ends in time", async () => {
    await refusal(`redis://localhost:${server.port}`);
  });

  test("a plain server is not taken for a secure one", async () => {
    await using plain = await startRedis();
    await refusal(`rediss://localhost:${plain.port}?ca=${files.ca}`);
  });

  test("where the server asks for it, a certificate of our own is shown", async () => {
    await using strict = await startRedis({ secure: files, settings: { "tls-auth-clients": "yes" } });
    const url = `rediss://localhost:${strict.port}?ca=${files.ca}`;
    await using(`${url}&cert=${files.cert}&key=${files.key}`, (broker) => broker.provision([topic]));
    await roundTrip(`${url}&cert=${files.cert}&key=${files.key}`);
    await refusal(url);
  });
});

await describeWith("redis", "redis with users", () => {
  let server: RedisServer;
  beforeAll(async () => {
    server = await startRedis();
    const acl = (name: string, ...rules: string[]) => ["ACL", "SETUSER", name, "on", ...rules];
    const shared = ["~*.events", "+auth", "+type", "+select"];
    const replies = await resp(
      server.port,
      ["XGROUP", "CREATE", topic, "none", "$", "MKSTREAM"],
      ["XGROUP", "DESTROY", topic, "none"],
      acl("sender", ">p@ss:w/ord", ...shared, "+xadd"),
      acl(
        "receiver",
        ">word",
        ...shared,
        "~waybill:*",
        "+eval",
        "+xgroup",
        "+xinfo",
        "+xautoclaim",
        "+xreadgroup",
        "+xread",
        "+xack",
        "+xadd",
      ),
      acl("keeper", ">word", ...shared, "+eval", "+xgroup"),
      acl("sweeper", ">word", ...shared, "+eval", "+xinfo", "+xpending", "+xtrim"),
      acl("nobody", ">sesame", "+@all", "~other:*"),
      ["ACL", "SETUSER", "default", ">another", "off"],
    );
    expect(replies.filter((reply) => reply instanceof Error)).toEqual([]);
  });
  afterAll(() => server[Symbol.asyncDispose]());
  const url = (who: string): string => `redis://${who}@127.0.0.1:${server.port}`;

  test("each side needs no more rights than the page lists", async () => {
    const event = sampleEvent();
    await using(url("keeper:word"), (broker) => broker.provision([topic, "new.events"], ["clerk"]));
    await using(url("sender:p%40ss%3Aw%2Ford"), async (broker) => {
      await broker.probe(topic, never);
      expect(await publish(broker, [event])).toEqual([{ status: "stored" }]);
    });
    await using(url("receiver:word"), async (broker) => {
      for await (const delivery of broker.receive({ consumer: "clerk", topics: [topic], prefetch: 1 }, never)) {
        await delivery.ack();
        expect(delivery.envelope.id).toBe(event.id);
        break;
      }
    });
    expect(await using(url("sweeper:word"), (broker) => broker.purge(new Date(Date.now() + 60_000), [topic]))).toBe(1);
  });

  test.each([
    ["a wrong password", "sender:sesame", /WRONGPASS/],
    ["an unknown user", "someone:sesame", /WRONGPASS/],
    ["no name where one is needed", "", /NOAUTH/],
    ["a password of the default user, who is off", ":sesame", /WRONGPASS/],
    ["rights to other keys only", "nobody:sesame", /NOPERM/],
  ])("%s: refused as the destination's, and never shown", async (_, who, why) => {
    const error = await refusal(url(who));
    expect(error.message).toMatch(why);
    expect(inspect(error, { depth: 20, showHidden: true })).not.toContain("sesame");
    await using(url(who), async (broker) => {
      expect(await publish(broker, [sampleEvent()])).toMatchObject([{ status: "refused", blame: "destination", retryable: true }]);
    });
  });

  test("a receiver without rights says which are missing", async () => {
    await using(url("sender:p%40ss%3Aw%2Ford"), async (broker) => {
      const wanted = { consumer: "clerk", topics: [topic], prefetch: 1 };
      const deliveries = broker.receive(wanted, never)[Symbol.asyncIterator]();
      await expect(deliveries.next()).rejects.toMatchObject({
        code: "DESTINATION_UNAVAILABLE",
        message: expect.stringMatching(/NOPERM .*'eval'/) as string,
      });
    });
  });
});
