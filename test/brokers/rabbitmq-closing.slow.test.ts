import { afterAll, beforeAll, expect, onTestFinished, test } from "vitest";
import { dial } from "../../src/brokers/rabbitmq/driver.ts";
import { settingsOf } from "../../src/brokers/rabbitmq/url.ts";
import { systemClock } from "../../src/core/clock.ts";
import { describeWith } from "../servers/available.ts";
import { startRabbitmq, type RabbitmqServer } from "../servers/rabbitmq.ts";

await describeWith("rabbitmq", "a channel of RabbitMQ that is about to close", () => {
  let server: RabbitmqServer;
  beforeAll(async () => void (server = await startRabbitmq()));
  afterAll(() => server[Symbol.asyncDispose]());

  test("takes an acknowledgement that comes too late without a word: the message is delivered again", async () => {
    const settings = settingsOf(server.url());
    const connection = await dial(
      { settings, address: settings.addresses[0]!, timeoutMs: 10_000, clock: systemClock },
      new AbortController().signal,
    );
    onTestFinished(() => connection.close());
    const channel = await connection.openChannel();
    const closed = channel.close();
    expect(() => channel.ack(1, false)).not.toThrow();
    await closed;
    expect(() => channel.ack(1, false)).not.toThrow();
  });
});
