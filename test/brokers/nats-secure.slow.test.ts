import { readFileSync } from "node:fs";
import { jetstreamManager } from "@nats-io/jetstream";
import { connect } from "@nats-io/transport-node";
import { afterAll, beforeAll, describe, expect, test } from "vitest";
import { nats } from "../../src/brokers/nats/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import type { NatsServer } from "../servers/nats.ts";
import { makeCertificates, type Certificates } from "../support/certificates.ts";
import { describeEachNats, never, outgoing, using } from "./nats.ts";

/** Why a connection is refused; it must not name a secret. */
async function refusal(url: string): Promise<string> {
  const broker = nats({ url });
  try {
    await within(10_000, "connecting", broker.connect(never));
    throw new Error("it was taken");
  } catch (error) {
    expect(error).toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
    const told = JSON.stringify({ ...(error as Error), text: String(error), cause: String((error as Error).cause) });
    expect(told).not.toMatch(/hush/);
    return String(error);
  } finally {
    await broker[Symbol.asyncDispose]();
  }
}

async function works(url: string): Promise<void> {
  await using({ url }, async (broker) => {
    await broker.provision(["secure.events"]);
    expect(await broker.publish(outgoing([sampleEvent()], "secure.events"), never)).toEqual([{ status: "stored" }]);
  });
}

await describeEachNats("nats: who may connect", (start) => {
  describe("by password, and each with rights of his own", () => {
    let server: NatsServer;
    const rights = `publish: { allow: ["$JS.API.>", "mine.>"] }, subscribe: { allow: ["_INBOX.>"] }`;
    const users = `{ user: "all", password: "hush:1@x" }, { user: "some", password: "hush2", permissions: { ${rights} } }`;
    beforeAll(async () => void (server = await start({ settings: `authorization { users: [ ${users} ] }` })));
    afterAll(() => server[Symbol.asyncDispose]());
    const as = (login: string): string => `nats://${login}@127.0.0.1:${server.port}`;

    test("the right one is taken, a wrong one or none is not", async () => {
      await works(as("all:hush%3A1%40x"));
      expect(await refusal(as("all:hush"))).toMatch(/authorization violation/i);
      expect(await refusal(`nats://127.0.0.1:${server.port}`)).toMatch(/authorization violation/i);
      expect(await refusal(as("hushtoken"))).toMatch(/authorization violation/i);
    });

    test("what a user may not publish to is the destination's fault, at once, and harms no other topic", async () => {
      await using({ url: as("all:hush%3A1%40x") }, (broker) => broker.provision(["mine.events", "other.events"]));
      await using({ url: as("some:hush2") }, async (broker) => {
        const batch = [
          ...outgoing([sampleEvent({ aggregateId: "a" }), sampleEvent({ aggregateId: "b" })], "other.events"),
          ...outgoing([sampleEvent({ aggregateId: "c" })], "mine.events"),
        ];
        const results = await within(5_000, "publishing", broker.publish(batch, never));
        const refused = { status: "refused", blame: "destination", error: { code: "DESTINATION_UNAVAILABLE" } };
        expect(results).toMatchObject([refused, refused, { status: "stored" }]);
      });
    });
  });

  describe("with the rights that docs/nats.md names, and no others", () => {
    let server: NatsServer;
    const page = readFileSync(new URL("../../docs/nats.md", import.meta.url), "utf8");
    const rightsOf = (who: string): string[] => {
      const row = page.split("\n").find((line) => line.startsWith(`| ${who} |`)) ?? "";
      return [...row.matchAll(/`(\$JS[^`]*)`/g)].map(([, subject]) => subject!);
    };
    const user = (name: string, publish: readonly string[], subscribe = ["_INBOX.>"]): string =>
      `{ user: "${name}", password: "x", permissions: ${JSON.stringify({ publish, subscribe })} }`;
    beforeAll(async () => {
      const subscriber = rightsOf("a subscriber");
      const users = [
        user("maker", rightsOf("whoever provisions"), ["_INBOX.>", "$JS.API.CONSUMER.INFO.>"]),
        user("relay", [...rightsOf("a relay"), "order.events", "shared.>"]),
        user("shop", subscriber),
        user(
          "unasking",
          subscriber.filter((subject) => !subject.includes("CONSUMER.INFO")),
        ),
      ];
      server = await start({ settings: `authorization { users: [ ${users.join(", ")} ] }` });
    });
    afterAll(() => server[Symbol.asyncDispose]());
    const as = (name: string): string => `nats://${name}:x@127.0.0.1:${server.port}`;

    test("each part does its work", async () => {
      await using({ url: as("maker") }, (broker) => broker.provision(["order.events"], ["shop"]));
      const events = [sampleEvent(), sampleEvent()];
      await using({ url: as("relay") }, async (broker) => {
        await broker.probe("order.events", never);
        expect(await broker.publish(outgoing(events, "order.events"), never)).toEqual([{ status: "stored" }, { status: "stored" }]);
        await expect(broker.provision(["other.events"])).rejects.toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
      });
      for (const event of events) {
        await using({ url: as("shop") }, async (broker) => {
          const deliveries = broker.receive({ consumer: "shop", topics: ["order.events"], prefetch: 1 }, never)[Symbol.asyncIterator]();
          const next = await within(5_000, "a delivery", deliveries.next());
          if (next.done === true) throw new Error("it ended");
          expect(next.value.envelope.id).toBe(event.id);
          await next.value.ack();
          await deliveries.return?.();
        });
      }
    });

    test.each(["shop", "unasking"])("%s reads a stream of several subjects, whether it may ask for what waits or not", async (name) => {
      const nc = await connect({ servers: `127.0.0.1:${server.port}`, user: "maker", pass: "x" });
      const manager = await jetstreamManager(nc, { checkAPI: false });
      await manager.streams.add({ name: `SHARED_${name}`, subjects: [`shared.${name}.*`] });
      const topic = `shared.${name}.events`;
      await using({ url: as("maker") }, (broker) => broker.provision([topic], ["shop"]));
      const asked = new Promise<void>((resolve) => nc.subscribe("$JS.API.CONSUMER.INFO.>", { callback: () => resolve() }));
      const events = [sampleEvent(), sampleEvent()];
      await using({ url: as("relay") }, (broker) => broker.publish(outgoing(events, topic), never));
      await using({ url: as(name) }, async (broker) => {
        const deliveries = broker.receive({ consumer: "shop", topics: [topic], prefetch: 1 }, never)[Symbol.asyncIterator]();
        for (const event of events) {
          const next = await within(5_000, "a delivery", deliveries.next());
          if (next.done === true) throw new Error("it ended");
          expect(next.value.envelope.id).toBe(event.id);
          await next.value.ack();
        }
        if (name === "shop") await within(5_000, "the question", asked);
        await deliveries.return?.();
      });
      await nc.close();
    });
  });

  describe("by token", () => {
    let server: NatsServer;
    beforeAll(async () => void (server = await start({ settings: `authorization { token: "hush" }` })));
    afterAll(() => server[Symbol.asyncDispose]());

    test("the right one is taken, a wrong one is not", async () => {
      await works(`nats://hush@127.0.0.1:${server.port}`);
      expect(await refusal(`nats://hush2@127.0.0.1:${server.port}`)).toMatch(/authorization violation/i);
    });
  });

  describe("encrypted", () => {
    let files: Certificates;
    let named: NatsServer;
    let numbered: NatsServer;
    let byNumber: Certificates;
    const settings = ({ cert, key }: Certificates): string => `tls { cert_file: "${cert}", key_file: "${key}" }`;
    beforeAll(async () => {
      files = makeCertificates("DNS:localhost");
      byNumber = makeCertificates("IP:127.0.0.1");
      named = await start({ settings: settings(files) });
      numbered = await start({ settings: settings(byNumber) });
    });
    afterAll(async () => {
      await named[Symbol.asyncDispose]();
      await numbered[Symbol.asyncDispose]();
      files[Symbol.dispose]();
      byNumber[Symbol.dispose]();
    });

    test("a server is taken under the name, or the address, that an authority of ours has signed", async () => {
      await works(`tls://localhost:${named.port}?ca=${files.ca}`);
      await works(`tls://127.0.0.1:${numbered.port}?ca=${byNumber.ca}`);
    });

    test("one that nobody we know has signed is not", async () => {
      expect(await refusal(`tls://localhost:${named.port}`)).toMatch(/certificate/i);
      expect(await refusal(`tls://localhost:${named.port}?ca=${byNumber.ca}`)).toMatch(/certificate|signature/i);
    });

    test("nor one that was signed for another name", async () => {
      expect(await refusal(`tls://127.0.0.1:${named.port}?ca=${files.ca}`)).toMatch(/does not match|not in the cert/i);
      expect(await refusal(`tls://localhost:${numbered.port}?ca=${byNumber.ca}`)).toMatch(/does not match|not in the cert/i);
    });

    test("a plain URL is not encrypted behind one's back, nor is an encrypted one ever plain", async () => {
      expect(await refusal(`nats://127.0.0.1:${named.port}`)).toMatch(/write the URL with tls:/);
      const plain = await start();
      try {
        expect(await refusal(`tls://u:hush@127.0.0.1:${plain.port}`)).toMatch(/tls/);
      } finally {
        await plain[Symbol.asyncDispose]();
      }
    });
  });

  test("what is no NATS server, or has no JetStream, is said to be so", async () => {
    expect(await refusal("nats://u:hush@127.0.0.1:1")).toMatch(/ECONNREFUSED/);
    const bare = await start({ settings: "accounts { A { users: [ { user: a, password: hush } ] } }, no_auth_user: a" });
    try {
      await using({ url: bare.url() }, async (broker) => {
        await broker.connect(never);
        await expect(within(5_000, "probe", broker.probe("x", never))).rejects.toThrow(/JetStream/);
      });
    } finally {
      await bare[Symbol.asyncDispose]();
    }
  });
});
