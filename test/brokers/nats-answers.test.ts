import type { Socket } from "node:net";
import { afterEach, beforeEach, describe, expect, test, vi } from "vitest";
import { nats, type Nats } from "../../src/brokers/nats/index.ts";
import { sampleEvent, within } from "../../src/conformance/corpus.ts";
import { info, rightAnswer, scriptedNats, type NatsScript } from "../support/scripted-nats.ts";
import { shared } from "../../src/core/time.ts";
import { outgoing } from "./nats.ts";

const topic = "t.events";
const never = shared(new AbortController()).signal;
const secret = "hush-hush";
const publish = (broker: Nats) => broker.publish(outgoing([sampleEvent()], topic), AbortSignal.timeout(4_000));
const waits = { status: "refused", blame: "destination", retryable: true, error: { code: "DESTINATION_UNAVAILABLE" } };
/** Nothing in JavaScript's own words, and none of the server's raw bytes. */
const wrongWords = /is not a|Cannot read|Unexpected|JSON at|undefined|\[object|\x1b|GARBAGE|hush/;

/** The words of every error in it. */
const wordsOf = (results: unknown): string =>
  JSON.stringify([results], (_, value: unknown) => (value instanceof Error ? value.message : value));

describe("nats: a server that says anything", () => {
  const printed: unknown[] = [];
  beforeEach(() => {
    printed.length = 0;
    for (const name of ["log", "info", "warn", "error", "trace", "debug"] as const)
      vi.spyOn(console, name).mockImplementation((...all: unknown[]) => void printed.push(...all));
  });
  afterEach(() => {
    vi.restoreAllMocks();
    expect(printed).toEqual([]);
  });

  /** While the server has its way, and then with a right one in its place. */
  async function against(script: NatsScript, work: (broker: Nats) => Promise<void>): Promise<void> {
    const server = await scriptedNats(script);
    const { port } = server;
    const broker = nats({ url: `nats://user:${secret}@127.0.0.1:${port}`, connectTimeoutMs: 400, provision: true });
    try {
      await work(broker);
      await server[Symbol.asyncDispose]();
      await using right = await scriptedNats({}, port);
      await expect.poll(async () => (await publish(broker))[0]!.status, { timeout: 10_000 }).toBe("stored");
      expect(right.open).toBe(1);
    } finally {
      await server[Symbol.asyncDispose]();
      await broker[Symbol.asyncDispose]();
    }
  }

  /** Ends by itself soon, in our words. */
  async function fails(broker: Nats): Promise<string> {
    const [result] = await within(5_000, "a result", publish(broker));
    expect(result).toMatchObject(waits);
    const words = wordsOf(result);
    expect(words).not.toMatch(wrongWords);
    return words;
  }

  const drip = (socket: Socket): void => {
    const dripping = setInterval(() => socket.write("x"), 20);
    socket.on("close", () => clearInterval(dripping));
  };
  const flood = (socket: Socket, start: string): { bytes(): number } => {
    let bytes = 0;
    const chunk = Buffer.alloc(65_536, 0x61);
    const more = (): void => {
      while (!socket.destroyed && socket.writable) {
        bytes += chunk.byteLength;
        if (!socket.write(chunk)) break;
      }
    };
    socket.on("drain", more);
    socket.write(start);
    more();
    return { bytes: () => bytes };
  };

  test.each([
    ["its first connection", 1],
    ["its second", 2],
  ])("that drips its first line on %s has a deadline, and its sockets end", async (_, which) => {
    const sockets = new Set<Socket>();
    const greeting = (connection: number, socket: Socket): string => {
      sockets.add(socket);
      socket.on("close", () => sockets.delete(socket));
      if (connection < which) return info();
      drip(socket);
      return "INFO {";
    };
    await against({ greeting }, async (broker) => {
      expect(await fails(broker)).toContain("it did not greet within 400 ms");
      await expect.poll(() => sockets.size).toBe(0);
    });
  });

  test.each([
    ["its first connection", 1],
    ["its second", 2],
  ])("whose first line on %s has no end is left early", async (_, which) => {
    let sent = (): number => 0;
    const greeting = (connection: number, socket: Socket): string | null => {
      if (connection < which) return info();
      sent = flood(socket, "INFO {").bytes;
      return null;
    };
    await against({ greeting }, async (broker) => {
      await fails(broker);
      expect(sent()).toBeLessThan(20_000_000);
    });
  });

  test("that ends its second connection before its first line is told in our words", async () => {
    const greeting = (connection: number, socket: Socket): string | null => (connection % 2 === 1 ? info() : (socket.end(), null));
    await against({ greeting }, async (broker) => {
      expect(await fails(broker)).toContain("the server closed the connection as it opened");
    });
  });

  test.each([-1, 0, 100, 1.5, "many", null, undefined])("whose max_payload is %s makes events wait, and none dies", async (limit) => {
    await against({ greeting: () => info({ max_payload: limit }) }, async (broker) => {
      expect(await fails(broker)).toContain("max_payload");
      expect(await fails(broker)).toContain("max_payload");
    });
  });

  test.each([1, 2])("that changes its max_payload to -1 later makes events wait, and none dies (%s)", async (round) => {
    let bad = false;
    const greeting = (): string => info(bad ? { max_payload: -1 } : {});
    const greeted = (socket: Socket): void => {
      if (round === 1 || bad) return;
      bad = true;
      socket.write(info({ max_payload: -1 }));
    };
    await against({ greeting, greeted }, async (broker) => {
      if (round === 1) {
        expect(await publish(broker)).toEqual([{ status: "stored" }]);
        bad = true;
        return;
      }
      for (let n = 0; n < 3; n++) {
        const [result] = await publish(broker);
        expect(result!.status === "refused" ? result : { ...waits }).toMatchObject(waits);
      }
    });
  });

  test.each([
    ["a message of 300 MB", "MSG _INBOX.x.1 1 300000000\r\n"],
    ["a message whose size is no number", "MSG _INBOX.x.1 1 9999999999999999999\r\n"],
    ["a line without an end", "MSG "],
    ["an error without an end", "-ERR '"],
  ])("that sends %s is left before it is taken", async (_, start) => {
    let sent = (): number => 0;
    const greeted = (socket: Socket): void => {
      sent = flood(socket, start).bytes;
    };
    await against({ greeted }, async (broker) => {
      const before = process.memoryUsage().rss;
      await broker.connect(never).catch(() => undefined);
      await expect.poll(async () => (await publish(broker))[0]!.status, { timeout: 5_000 }).not.toBe("stored");
      expect(sent()).toBeLessThan(20_000_000);
      expect(process.memoryUsage().rss - before).toBeLessThan(150_000_000);
    });
  });

  test.each([
    ["bytes", "\x1b[31mGARBAGE\r\n"],
    ["an INFO that is no JSON", 'INFO {"GARBAGE\r\n'],
    ["a message without sizes", "MSG GARBAGE\r\n"],
    ["headers larger than their message", "HMSG a 1 100 10\r\nGARBAGE\r\n"],
  ])("that sends %s is left, and none of it is shown", async (_, said) => {
    for (const when of ["greeting", "greeted"] as const) {
      const script: NatsScript =
        when === "greeting"
          ? { greeting: (connection) => (connection % 2 === 1 ? info() : info() + said) }
          : { greeted: (socket) => void socket.write(said) };
      await against(script, async (broker) => {
        const words = wordsOf(await broker.connect(never).catch((error: unknown) => error));
        expect(words).not.toMatch(wrongWords);
        expect(wordsOf(await publish(broker))).not.toMatch(wrongWords);
      });
    }
  });

  const odd = [
    ...["", "5", "null", '"x"', "[]", "{", "{}", '{"streams":5}', '{"streams":[5]}', '{"streams":{"0":"S"}}', '{"streams":["a b.>"]}'],
    ...['{"error":"GARBAGE"}', '{"error":null}', '{"error":{"err_code":"x"}}', '{"error":{"err_code":1,"description":{"toString":1}}}'],
    ...['{"config":null}', '{"config":{},"state":5}', '{"config":{"retention":5},"state":{}}', '{"consumers":5,"total":9}'],
    ...['{"consumers":[null],"total":1}', '{"consumers":[{"name":5}],"total":1}', '{"streams":["S"],"total":"x","config":{"metadata":5}}'],
    JSON.stringify({ streams: ["a".repeat(9_000_000)] }),
  ];

  test.each(["STREAM.NAMES", "STREAM.INFO", "CONSUMER.LIST", "CONSUMER.DURABLE", ""])(
    "whose answers to %s have another form is in trouble, in our words",
    async (asked) => {
      let said = "";
      const isAsked = (subject: string): boolean =>
        asked === "" ? subject.startsWith("$JS.API.") : subject.startsWith(`$JS.API.${asked}`);
      await against({ answer: (subject) => (isAsked(subject) ? said : rightAnswer(subject)) }, async (broker) => {
        for (said of odd) {
          const told: unknown[] = await Promise.all([
            publish(broker),
            broker.probe(topic, never).catch((error: unknown) => error),
            broker.oldest!(topic, never, "shop").catch((error: unknown) => error),
            broker.lag!(topic, never, "shop").catch((error: unknown) => error),
            broker.examine([topic], never).catch((error: unknown) => error),
            broker.provision([topic], ["shop"]).catch((error: unknown) => error),
          ]);
          for (const one of told) if (one instanceof Error) expect(one).toMatchObject({ code: "DESTINATION_UNAVAILABLE" });
          expect(wordsOf(told), said.slice(0, 80)).not.toMatch(wrongWords);
        }
      });
    },
    60_000,
  );

  test.each(odd.slice(0, 20))("that acknowledges with %s is not believed, and nothing throws", async (said) => {
    await against({ answer: (subject) => (subject === topic ? said : rightAnswer(subject)) }, async (broker) => {
      const [result] = await publish(broker);
      expect(result!.status).not.toBe("stored");
      expect(result).not.toMatchObject({ blame: "event" });
      expect(wordsOf(result)).not.toMatch(wrongWords);
    });
  });

  test.each([
    ["messages", { prefetch: 3 }, 10],
    ["bytes", { prefetch: 1_000, bytes: 100_000 }, 500],
  ])("that delivers more %s than it was asked for is left", async (_, more, size) => {
    const script: NatsScript = {
      pulled: (socket, _, sid) => {
        const data = "x".repeat(size);
        for (let n = 1; n <= 500; n++)
          socket.write(`MSG ${topic} ${sid} $JS.ACK.S.d.1.${n}.${n}.1700000000000000000.9 ${data.length}\r\n${data}\r\n`);
      },
    };
    await against(script, async (broker) => {
      let count = 0;
      const read = async (): Promise<void> => {
        for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], ...more }, never)) {
          count += 1;
          await delivery.ack();
        }
      };
      await expect(within(5_000, "the end", read())).rejects.toThrow(/sends more of t.events than it was asked for/);
      expect(count).toBeLessThan(300);
    });
  });

  test.each(["409 Batch Completed", "408 Request Timeout"])(
    "that says %s before it delivers, as one of a cluster does, is read to the end",
    async (said) => {
      let last = 0;
      const script: NatsScript = {
        pulled: (socket, inbox, sid, batch) => {
          const head = `NATS/1.0 ${said}\r\nNats-Pending-Messages: 1\r\nNats-Pending-Bytes: 0\r\n\r\n`;
          socket.write(`HMSG ${inbox} ${sid} ${head.length} ${head.length}\r\n${head}\r\n`);
          // It waits until the other servers know that it delivers them. One fewer than was asked for.
          setTimeout(() => {
            for (let left = batch - 1; left > 0; left--) {
              last += 1;
              socket.write(`MSG ${topic} ${sid} $JS.ACK.S.d.1.${last}.${last}.1700000000000000000.9 4\r\nxxxx\r\n`);
            }
          }, 20);
        },
      };
      await against(script, async (broker) => {
        let count = 0;
        const read = async (): Promise<void> => {
          for await (const delivery of broker.receive({ consumer: "shop", topics: [topic], prefetch: 8 }, never)) {
            await delivery.ack();
            if ((count += 1) === 50) return;
          }
        };
        await within(5_000, "the end", read());
      });
    },
  );
});
