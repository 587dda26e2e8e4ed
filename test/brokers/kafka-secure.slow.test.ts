import { afterAll, beforeAll, expect, test } from "vitest";
import { kafka, type KafkaOptions } from "../../src/brokers/kafka/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { describeWith } from "../servers/available.ts";
import { startKafka, type KafkaServer } from "../servers/kafka.ts";
import { makeCertificates, type Certificates } from "../support/certificates.ts";
import { makeTopic } from "./kafka-raw.ts";
import { never, outgoing } from "./kafka.ts";

const topic = "secure.events";
const login = "shop:hush%3A1%40x";

/** Why a connection is refused; it must not name a secret. */
async function refusal(url: string): Promise<string> {
  const broker = kafka({ url, timeoutMs: 10_000 });
  try {
    await within(30_000, "connecting", broker.connect(never));
    throw new Error("it was taken");
  } catch (error) {
    expect(error).toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    const told = JSON.stringify({ ...(error as Error), text: String(error), cause: String((error as Error).cause) });
    expect(told).not.toMatch(/hush/);
    return String(error);
  } finally {
    await within(15_000, "closing", Promise.resolve(broker[Symbol.asyncDispose]()));
  }
}

async function works(url: string, options: Partial<KafkaOptions> = {}): Promise<void> {
  const broker = kafka({ url, ...options });
  try {
    const event = sampleEvent();
    expect(await broker.publish(outgoing([event], topic), never)).toEqual([{ status: "stored" }]);
    for await (const delivery of broker.receive({ consumer: `reader-${event.id}`, topics: [topic], prefetch: 100 }, never)) {
      if (delivery.envelope.id === event.id) break;
    }
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

await describeWith("kafka", "kafka: who may connect", () => {
  let certificates: Certificates;
  let others: Certificates;
  let server: KafkaServer;
  beforeAll(async () => {
    certificates = makeCertificates("IP:127.0.0.1");
    others = makeCertificates("DNS:localhost");
    server = await startKafka({ secure: certificates, sasl: { user: "shop", password: "hush:1@x" } });
    await makeTopic(server.url(), topic, 1);
  });
  afterAll(async () => {
    await server[Symbol.asyncDispose]();
    certificates[Symbol.dispose]();
    others[Symbol.dispose]();
  });

  test.each(["plain", "scram-sha-256", "scram-sha-512"])(
    "by %s: the right password is taken, a wrong one and none are not",
    async (sasl) => {
      await works(`kafka://${login}@127.0.0.1:${server.saslPort}?sasl=${sasl}`);
      expect(await refusal(`kafka://shop:hush@127.0.0.1:${server.saslPort}?sasl=${sasl}`)).toMatch(
        /authentication failed|invalid credentials/i,
      );
      expect(await refusal(`kafka://nobody:hush@127.0.0.1:${server.saslPort}?sasl=${sasl}`)).toMatch(
        /authentication failed|invalid credentials/i,
      );
    },
  );

  test("with a password and without it, in clear where encryption is asked for, a connection is refused in words", async () => {
    const bare = kafka({ url: `kafka://127.0.0.1:${server.saslPort}`, timeoutMs: 3_000 });
    await expect(bare.probe(topic, never)).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    expect(await bare.publish(outgoing([sampleEvent()], topic), never)).toMatchObject([{ status: "refused", blame: "destination" }]);
    await bare[Symbol.asyncDispose]();
    expect(await refusal(`kafka://127.0.0.1:${server.tlsPort}`)).toMatch(/cannot be reached/);
    expect(await refusal(`kafkas://127.0.0.1:${server.port}?ca=${certificates.ca}`)).toMatch(/cannot be reached|took no connection/);
  });

  test("by a certificate: verified against the authority that was given, and for the host that was named", async () => {
    await works(`kafkas://127.0.0.1:${server.tlsPort}?ca=${certificates.ca}`);
    await works(`kafka://127.0.0.1:${server.tlsPort}?tls=true&ca=${certificates.ca}&cert=${certificates.cert}&key=${certificates.key}`);
    expect(await refusal(`kafkas://127.0.0.1:${server.tlsPort}`)).toMatch(/self[- ]signed|unable to verify|issuer/);
    expect(await refusal(`kafkas://127.0.0.1:${server.tlsPort}?ca=${others.ca}`)).toMatch(
      /unable to verify|signature|self[- ]signed|issuer/,
    );
    expect(await refusal(`kafkas://localhost:${server.tlsPort}?ca=${certificates.ca}`)).toMatch(/does not match/);
  });

  test("by both at once", async () => {
    const both = (password: string): string =>
      `kafkas://shop:${password}@127.0.0.1:${server.saslTlsPort}?sasl=scram-sha-512&ca=${certificates.ca}`;
    await works(both("hush%3A1%40x"), { transactions: true });
    expect(await refusal(both("hush"))).toMatch(/authentication failed|invalid credentials/i);
  });
});
