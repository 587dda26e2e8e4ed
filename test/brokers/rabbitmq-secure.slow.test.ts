import { inspect } from "node:util";
import { afterAll, beforeAll, expect, test } from "vitest";
import { rabbitmq } from "../../src/brokers/rabbitmq/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";
import { makeCertificates, type Certificates } from "../support/certificates.ts";
import { describeOn, never, outgoing, using } from "./rabbitmq.ts";

const topic = "mine.events";
const user = (name: string, password: string) => ({ name, password, tags: "" });
const rights = (name: string, vhost: string, configure: string, write: string, read: string) => ({
  user: name,
  vhost,
  configure,
  write,
  read,
});

const definitions = {
  users: [user("all", "p@ss:w/ord"), user("sender", "word"), user("reader", "word"), user("some", "word"), user("nobody", "sesame")],
  vhosts: [{ name: "/" }, { name: "shop/1 ü" }],
  permissions: [
    rights("all", "/", ".*", ".*", ".*"),
    rights("all", "shop/1 ü", ".*", ".*", ".*"),
    rights("sender", "/", "^$", "^waybill$", "^$"),
    rights("reader", "/", "^$", "^$", "^(clerk|other)\\."),
    rights("some", "/", "^$", "^waybill$", "^$"),
  ],
  // From RabbitMQ 4 on, rights on an exchange can be imported only with the exchange.
  exchanges: [{ name: "waybill", vhost: "/", type: "topic", durable: true, auto_delete: false, internal: false, arguments: {} }],
  topic_permissions: [{ user: "some", vhost: "/", exchange: "waybill", write: "^mine\\.", read: "^$" }],
};

/** Why it cannot be connected to. */
async function refusal(url: string): Promise<string> {
  const broker = rabbitmq({ url, timeoutMs: 3_000 });
  try {
    await within(5_000, "connecting", broker.connect(never));
    throw new Error("it was taken");
  } catch (error) {
    expect(error).toMatchObject({ code: "DESTINATION_UNAVAILABLE", retryable: true });
    expect(inspect(error, { depth: 20, showHidden: true })).not.toMatch(/sesame/);
    const [result] = await broker.publish(outgoing([sampleEvent()], topic), never);
    expect(result).toMatchObject({ status: "refused", blame: "destination", retryable: true });
    return String(error);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

await describeOn(["rabbitmq"], "rabbitmq: who may connect, and to whom", (on) => {
  let files: Certificates;
  let strangers: Certificates;
  let server: RabbitmqServer;
  const url = (login: string, query = `?ca=${files.ca}&cert=${files.cert}&key=${files.key}`, host = "localhost", vhost = ""): string =>
    `amqps://${login}@${host}:${server.port}${vhost}${query}`;
  beforeAll(async () => {
    files = makeCertificates("DNS:localhost");
    strangers = makeCertificates("DNS:localhost");
    const asking = { "ssl_options.verify": "verify_peer", "ssl_options.fail_if_no_peer_cert": "true" };
    server = await startRabbitmq({ ...on, secure: files, settings: asking, definitions });
    await using({ url: url("all:p%40ss%3Aw%2Ford") }, (broker) => broker.provision([topic, "other.events"], ["clerk"]));
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    files[Symbol.dispose]();
    strangers[Symbol.dispose]();
  });

  test("a server whose authority is given is trusted, and sees a certificate of our own", async () => {
    await using({ url: url("all:p%40ss%3Aw%2Ford") }, async (broker) => {
      expect(await broker.publish(outgoing([sampleEvent()], "other.events"), never)).toEqual([{ status: "stored" }]);
    });
    // TLS 1.3 tells a client only after its handshake that its certificate is missing.
    expect(await refusal(url("all:p%40ss%3Aw%2Ford", `?ca=${files.ca}`))).toMatch(
      /certificate required|handshake|ECONNRESET|closed|Unexpected close/i,
    );
  });

  test("a server of another authority, or of another name, is not", async () => {
    const own = `&cert=${files.cert}&key=${files.key}`;
    expect(await refusal(url("all:sesame", `?${own.slice(1)}`))).toMatch(/self.signed|certificate/i);
    expect(await refusal(url("all:sesame", `?ca=${strangers.ca}${own}`))).toMatch(/self.signed|signature|certificate/i);
    expect(await refusal(url("all:sesame", `?ca=${files.ca}${own}`, "127.0.0.1"))).toMatch(/altnames|does not match/i);
  });

  test("speaking plainly to it ends in time", async () => {
    await refusal(`amqp://all:sesame@localhost:${server.port}`);
  });

  test("a wrong password, an unknown user, one without rights, and a virtual host that is not there: refused, and no secret shown", async () => {
    expect(await refusal(url("all:sesame"))).toMatch(/ACCESS_REFUSED|ACCESS-REFUSED/);
    expect(await refusal(url("someone:sesame"))).toMatch(/ACCESS_REFUSED|ACCESS-REFUSED/);
    expect(await refusal(url("nobody:sesame"))).toMatch(/virtual host \/, or this user may not enter/);
    expect(await refusal(url("all:p%40ss%3Aw%2Ford", undefined, undefined, "/none"))).toMatch(/no virtual host none/);
  });

  test("a virtual host of any name is another broker", async () => {
    await using({ url: url("all:p%40ss%3Aw%2Ford", undefined, undefined, "/shop%2F1%20%C3%BC") }, async (broker) => {
      expect(await broker.publish(outgoing([sampleEvent()], topic), never)).toMatchObject([{ status: "refused", blame: "destination" }]);
      await broker.provision([topic], ["clerk"]);
      expect(await broker.publish(outgoing([sampleEvent()], topic), never)).toEqual([{ status: "stored" }]);
      const reading = broker.receive({ consumer: "other", topics: [topic], prefetch: 1 }, never)[Symbol.asyncIterator]();
      const way = `run waybill migrate --broker amqps://localhost:${server.port}/shop%2F1%20%C3%BC --topics`;
      await expect(reading.next(), "the remedy names the virtual host").rejects.toThrow(way);
    });
  });

  test("each side needs no more rights than the page lists", async () => {
    const event = sampleEvent();
    await using({ url: url("sender:word") }, async (broker) => {
      await broker.probe(topic, never);
      expect(await broker.publish(outgoing([event], topic), never)).toEqual([{ status: "stored" }]);
      await expect(broker.provision([topic], ["clerk"])).rejects.toMatchObject({
        code: "DESTINATION_UNAVAILABLE",
        message: expect.stringMatching(/ACCESS_REFUSED - (configure )?access to/) as string,
      });
    });
    await using({ url: url("reader:word") }, async (broker) => {
      for await (const delivery of broker.receive({ consumer: "clerk", topics: [topic], prefetch: 1 }, never)) {
        await delivery.ack();
        expect(delivery.envelope.id).toBe(event.id);
        break;
      }
      const reading = broker.receive({ consumer: "other", topics: [topic], prefetch: 1 }, never)[Symbol.asyncIterator]();
      await expect(reading.next()).rejects.toThrow(/has no queue/);
      const [first, second] = await broker.publish(
        outgoing([sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })], topic),
        never,
      );
      for (const result of [first, second]) expect(result).toMatchObject({ status: "refused", blame: "destination", retryable: true });
    });
  });

  test("a topic that a user may not publish to harms no other topic", async () => {
    await using({ url: url("some:word") }, async (broker) => {
      const batch = [
        ...outgoing([sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })], "other.events"),
        ...outgoing([sampleEvent({ aggregateId: "c" }), sampleEvent({ aggregateId: "c" })], topic),
      ];
      for (let round = 0; round < 2; round++) {
        const refused = { status: "refused", blame: "destination", error: { message: expect.stringMatching(/ACCESS_REFUSED/) as string } };
        expect(await broker.publish(batch, never)).toMatchObject([refused, refused, { status: "stored" }, { status: "stored" }]);
      }
    });
  });
});
